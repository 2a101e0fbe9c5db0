// Play an environment: click an admissible action or type.
import { byId, fill, made, number } from "./dom.js";
import { Session } from "./session.js";

let session = null;
let total = 0;
let admissible = [];

const token = () => byId("token").value;

/** The served environments; asks for the token where the server wants one. */
async function list() {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  const answer = await fetch("envs", { headers });
  byId("token-field").hidden = answer.status !== 401 && !token();
  if (answer.status === 401) throw new Error("this server wants a token");
  if (!answer.ok) throw new Error(`the server says ${answer.status}`);
  const { envs } = await answer.json();
  byId("env").replaceChildren(...envs.map((name) => made("option", { value: name, text: name })));
}

async function begin() {
  if (byId("env").options.length === 0) await list();
  session?.close();
  session = new Session(byId("env").value, token());
  total = 0;
  byId("past").replaceChildren();
  say("Starting …");
  show(await session.ask("reset", { seed: Number(byId("seed").value) }));
  byId("board").hidden = false;
  byId("text").focus();
}

async function step(text) {
  if (session === null) return;
  lock(true);
  const result = await session.ask("step", { text });
  total += result.reward ?? 0;
  const past = made("li", { text: `${text} ` }, made("small", { text: `(reward ${number(result.reward ?? 0)})` }));
  byId("past").append(past);
  past.scrollIntoView({ block: "nearest" });
  byId("text").value = "";
  show(result);
  if (!result.done) byId("text").focus();
}

function show({ observation, reward, done }) {
  const info = observation.info ?? {};
  admissible = info.admissible_actions ?? [];
  byId("observation").textContent = observation.text ?? "";
  byId("observation").hidden = !observation.text;
  byId("prompt").textContent = promptText(observation.prompt);
  byId("info").textContent = JSON.stringify(info, null, 1);
  const image = imageOf(observation);
  byId("image").hidden = image === null;
  if (image !== null) byId("image").src = image;
  fill(byId("figures"), [
    ["reward", number(reward ?? 0)], ["total", number(total)], ["steps", String(info.steps ?? 0)],
    ["score", number(info.score ?? 0)],
    ["last action", info.is_action_valid === false ? "invalid" : "valid", info.is_action_valid === false ? "lost" : ""],
  ]);
  const how = observation.terminated ? "ended" : "was cut off at its step limit";
  say(done ? `The episode ${how}: ${info.won ? "won" : "not won"}. Press New episode to go on.` : info.task ?? "",
    done ? (info.won ? "won" : "lost") : "");
  showActions();
  lock(done);
}

/** The prompt is text, or a list of chat messages. */
function promptText(prompt) {
  if (typeof prompt === "string") return prompt;
  return (prompt ?? []).map((message) =>
    typeof message.content === "string" ? message.content
      : message.content.map((part) => part.text ?? "[image]").join("")).join("\n\n");
}

function imageOf(observation) {
  const found = observation.image ?? observation.images?.at(-1) ?? null;
  return typeof found === "string" && found.startsWith("data:image/") ? found : null;
}

function showActions() {
  const wanted = byId("filter").value.toLowerCase();
  byId("choices").hidden = admissible.length === 0;
  byId("actions").replaceChildren(
    ...admissible.filter((action) => action.toLowerCase().includes(wanted)).map((action) =>
      made("li", {}, made("button", { type: "button", text: action, onclick: () => tried(() => step(action)) }))),
  );
}

function lock(over) {
  for (const control of document.querySelectorAll("#say button, #text, #actions button")) control.disabled = over;
}

function say(text, className = "") {
  byId("status").textContent = text;
  byId("status").className = className;
}

async function tried(work) {
  try {
    await work();
  } catch (error) {
    say(`${error.message}`, "problem");
    lock(false);
  }
}

/** Arrow keys walk through the actions, as in a list. */
function walkActions(event) {
  const turn = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const buttons = [...byId("actions").querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  if (turn === undefined || at < 0) return;
  event.preventDefault();
  buttons[(at + turn + buttons.length) % buttons.length].focus();
}

export function startPlay() {
  byId("start").addEventListener("submit", (event) => { event.preventDefault(); tried(begin); });
  byId("say").addEventListener("submit", (event) => { event.preventDefault(); tried(() => step(byId("text").value)); });
  byId("token").addEventListener("change", () => tried(list));
  byId("filter").addEventListener("input", showActions);
  byId("actions").addEventListener("keydown", walkActions);
  tried(list);
}
