// One WebSocket: one session with one environment. Requests are answered in order.

const REASONS = {
  1006: "the connection to the server is lost",
  1012: "the server shuts down",
  4401: "the token is wrong",
  4408: "nothing was asked for a while",
};

export class Session {
  /**
   * @param {string} name of the environment's mount.
   * @param {string} token "" where none is needed.
   * @param {(why: string) => void} ended called once, where no request that waits is told.
   */
  constructor(name, token, ended) {
    const url = new URL(`envs/${encodeURIComponent(name)}/ws`, document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    this.waiting = [];
    this.lastError = "";
    this.began = false;
    this.ended = ended;
    this.socket = new WebSocket(url);
    this.opened = new Promise((done, failed) => {
      this.socket.onopen = done;
      this.socket.onerror = () => failed(new Error("the server does not answer, or refuses this connection"));
    });
    this.opened.catch(() => {});
    if (token) this.opened.then(() => this.socket.send(JSON.stringify({ type: "auth", data: { token } })), () => {});
    this.socket.onmessage = (event) => this.take(JSON.parse(event.data));
    this.socket.onclose = (event) => this.end(REASONS[event.code] || this.lastError || `code ${event.code} ${event.reason}`);
    this.opened.then(() => { this.began = true; }, () => {});
  }

  /** Tells each ending once: to who waits for an answer, or else by ended(). */
  end(why) {
    const told = `The session is over: ${why}. New episode begins another.`;
    const waiting = this.waiting.splice(0);
    for (const next of waiting) next.failed(new Error(told));
    if (this.began && waiting.length === 0) this.ended(told);
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  take(message) {
    const next = this.waiting.shift();
    if (message.type === "error") {
      this.lastError = message.data.message;
      next?.failed(new Error(message.data.message));
    } else next?.done(message.data);
  }

  /** The data of the reply. `data` is JSON text. */
  async ask(type, data) {
    await this.opened;
    if (!this.isOpen) throw new Error("the session is over: begin a new episode");
    return new Promise((done, failed) => {
      this.waiting.push({ done, failed });
      this.socket.send(`{"type": "${type}", "data": ${data}}`);
    });
  }

  /** For another session: what still waits is never answered. */
  close() {
    this.socket.onclose = this.socket.onmessage = null;
    this.waiting = [];
    this.socket.close();
  }
}
