// One WebSocket: one session with one environment. Requests are answered in order.

export class Session {
  /** @param {string} name of the environment's mount. @param {string} token "" where none is needed. */
  constructor(name, token) {
    const url = new URL(`envs/${encodeURIComponent(name)}/ws`, document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    this.waiting = [];
    this.socket = new WebSocket(url);
    this.opened = new Promise((done, failed) => {
      this.socket.onopen = done;
      this.socket.onerror = () => failed(new Error("the server does not take this connection"));
    });
    this.opened.catch(() => {});
    if (token) this.opened.then(() => this.socket.send(JSON.stringify({ type: "auth", data: { token } })), () => {});
    this.socket.onmessage = (event) => this.take(JSON.parse(event.data));
    this.socket.onclose = (event) => this.fail(`the session is over (${event.code} ${event.reason})`);
  }

  take(message) {
    const next = this.waiting.shift();
    if (next === undefined) return;
    if (message.type === "error") next.failed(new Error(message.data.message));
    else next.done(message.data);
  }

  fail(why) {
    for (const next of this.waiting.splice(0)) next.failed(new Error(why));
  }

  async ask(type, data) {
    await this.opened;
    if (this.socket.readyState !== WebSocket.OPEN) throw new Error("the session is over: begin a new episode");
    return new Promise((done, failed) => {
      this.waiting.push({ done, failed });
      this.socket.send(JSON.stringify({ type, data }));
    });
  }

  close() {
    this.socket.onclose = null;
    this.fail("closed");
    this.socket.close();
  }
}
