// Play an environment: click an admissible action or type.
import { byId, fill, made, number } from "./dom.js";
import { Session } from "./session.js";

const SLOT = /<[^>]*>/; // what an action such as search[<your query>] leaves to the player

let session = null; // with an episode that has begun and is not over, or about to begin
let busy = false;
let total = 0;
let admissible = [];

const token = () => byId("token").value;

/** The served environments; asks for the token where the server wants one. */
async function list() {
  if (!/^[ -~]*$/.test(token())) throw new Error("the token is wrong: tokens are printable ASCII");
  let answer;
  try {
    answer = await fetch("envs", { headers: token() ? { Authorization: `Bearer ${token()}` } : {} });
  } catch (error) {
    throw new Error("the server does not answer", { cause: error });
  }
  byId("token-field").hidden = answer.status !== 401 && !token();
  if (answer.status === 401) {
    byId("env").replaceChildren();
    const inPath = /\/t\/[^/]+\/$/.test(location.pathname);
    throw new Error(token() || inPath ? "the token is wrong" : "this server wants a token");
  }
  if (!answer.ok) throw new Error(`the server says ${answer.status}`);
  const { envs } = await answer.json();
  byId("env").replaceChildren(...envs.map((name) => made("option", { value: name, text: name })));
  say("Pick an environment and begin.");
}

async function begin() {
  if (byId("env").options.length === 0) await list();
  const options = startGiven();
  session?.close();
  const mine = (session = new Session(byId("env").value, token(), (why) => tried(() => Promise.reject(new Error(why)))));
  total = 0;
  busy = true;
  lock();
  say("Starting …");
  const result = await mine.ask("reset", options).catch(giveUp(mine));
  if (session !== mine) return;
  byId("past").replaceChildren();
  byId("board").hidden = false;
  show(result);
  byId("text").focus();
}

/** Without an episode there is nothing to step in; a session that another has replaced is not spoken of. */
function giveUp(failed) {
  return (error) => {
    if (session !== failed) return;
    session.close();
    session = null;
    throw error;
  };
}

/** The data of a reset as JSON text: seeds and options keep digits that a JavaScript number would lose. */
function startGiven() {
  const text = byId("options").value.trim() || "{}";
  let options = null;
  try {
    options = JSON.parse(text);
  } catch (error) {
    throw new Error(`the options are no JSON: ${error.message}`, { cause: error });
  }
  if (options === null || typeof options !== "object" || Array.isArray(options)) {
    throw new Error('the options must be a JSON object such as {"max_steps": 20}');
  }
  const seed = byId("seed").value.replace(/^0+(?=\d)/, "");
  return `{"seed": ${seed}${Object.keys(options).length > 0 ? ", " : ""}${text.slice(1)}`;
}

async function step(text) {
  const mine = session;
  if (mine === null || busy) return;
  const clicked = document.activeElement?.closest("#actions") ? text : null;
  busy = true;
  lock();
  const result = await mine.ask("step", JSON.stringify({ text }));
  if (session !== mine) return;
  total += result.reward ?? 0;
  const past = made("li", {}, made("span", { text }), made("small", { text: `reward ${number(result.reward ?? 0)}` }));
  byId("past").append(past);
  byId("past").scrollTop = byId("past").scrollHeight;
  byId("text").value = "";
  show(result);
  refocus(clicked, result.done);
}

/** The cursor stays in the list of actions, or in the text; after the end it goes to the next episode. */
function refocus(clicked, done) {
  const buttons = [...byId("actions").querySelectorAll("button")];
  const same = clicked === null ? undefined : buttons.find((button) => button.textContent === clicked) ?? buttons[0];
  (done ? byId("begin") : same ?? byId("text")).focus({ preventScroll: done });
}

function show({ observation, reward, done }) {
  const info = observation.info ?? {};
  const text = observation.text ?? "";
  const picture = observation.images?.at(-1);
  admissible = Array.isArray(info.admissible_actions) ? info.admissible_actions.map(String) : [];
  byId("observation").textContent = text || "(empty)";
  byId("observation").hidden = !text && Boolean(picture);
  byId("image").hidden = !isPicture(picture);
  if (isPicture(picture)) byId("image").src = picture;
  byId("prompt").replaceChildren(...promptParts(observation));
  byId("info").textContent = JSON.stringify(info, null, 1);
  const invalid = info.is_action_valid === false;
  fill(byId("figures"), [
    ["reward", reward === null || reward === undefined ? "–" : number(reward)], ["total", number(total)],
    ["steps", String(info.steps ?? 0)], ["score", number(info.score ?? 0)],
    ["last action", info.steps ? (invalid ? "invalid" : "valid") : "–", invalid ? "lost" : ""],
  ]);
  busy = false;
  if (done) finish(observation, info);
  else say(info.task ?? "");
  showActions();
}

function finish(observation, info) {
  session.close();
  session = null;
  const how = info.error ? `failed (${info.error})` : observation.terminated ? "ended" : "was cut off at its step limit";
  say(`The episode ${how}: ${info.won ? "won" : "not won"}. New episode begins another.`, info.won ? "won" : "lost");
}

/** The prompt is a text; with pictures it comes as chat messages, too. */
function promptParts({ prompt, messages }) {
  if (!messages) return [prompt || "(none: the episode is over)"];
  return messages.flatMap(({ content }) => (typeof content === "string" ? [content] : content.map(promptPart)));
}

function promptPart(part) {
  const url = part.image_url?.url;
  return isPicture(url) ? made("img", { src: url, alt: "picture in the prompt" }) : part.text ?? "";
}

const isPicture = (url) => typeof url === "string" && url.startsWith("data:image/png;base64,");

function showActions() {
  const wanted = byId("filter").value.toLowerCase();
  byId("choices").hidden = admissible.length === 0;
  byId("filter-field").hidden = admissible.length < 8 && !wanted;
  byId("actions").replaceChildren(
    ...admissible.filter((action) => action.toLowerCase().includes(wanted)).map((action) =>
      made("li", {}, made("button", { type: "button", text: action, onclick: () => tried(() => choose(action)) }))),
  );
  lock();
}

/** Takes an action, or lets the player fill its slot first. */
function choose(action) {
  const slot = SLOT.exec(action);
  if (slot === null) return step(action);
  const field = byId("text");
  field.value = action;
  field.focus();
  field.setSelectionRange(slot.index, slot.index + slot[0].length);
  return undefined;
}

function lock() {
  const closed = busy || session === null;
  for (const control of document.querySelectorAll("#say button, #text, #actions button")) control.disabled = closed;
}

function say(text, className = "") {
  byId("status").textContent = text;
  byId("status").className = className;
}

async function tried(work) {
  try {
    await work();
  } catch (error) {
    if (session?.isOpen === false) session = null;
    busy = false;
    lock();
    say(error.message, "problem");
  }
}

/** Arrow keys walk through the actions, as in a list, and from the text into it. */
function walkActions(event) {
  const buttons = [...byId("actions").querySelectorAll("button")];
  if (event.target !== byId("text")) {
    const turn = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (turn === undefined || at < 0) return;
    event.preventDefault();
    buttons[(at + turn + buttons.length) % buttons.length].focus();
  } else if (event.key === "ArrowDown" && buttons.length > 0) {
    event.preventDefault();
    buttons[0].focus();
  }
}

export function startPlay() {
  byId("start").addEventListener("submit", (event) => { event.preventDefault(); tried(begin); });
  byId("say").addEventListener("submit", (event) => { event.preventDefault(); tried(() => step(byId("text").value)); });
  byId("token").addEventListener("change", () => tried(list));
  byId("filter").addEventListener("input", showActions);
  byId("actions").addEventListener("keydown", walkActions);
  byId("text").addEventListener("keydown", walkActions);
  tried(list);
}
