// Walk through recorded trajectories, the replicas of a group side by side.
import { byId, fill, made, number } from "./dom.js";
import { OUTCOMES, readTrajectories, stepRow } from "./trajectories.js";

let file = null;
let recorded = [];
let shown = [];
let promptsOpen = false;
let drawing = 0; // number of the latest drawing; an older one that comes late is dropped

const groupOf = ({ start }) => `group ${start.group}, seed ${start.seed}`;

async function open(chosen) {
  const bar = byId("reading");
  bar.value = 0;
  bar.hidden = false;
  file = chosen;
  recorded = [];
  about(`Reading ${chosen.name} …`);
  choose();
  try {
    const { header, trajectories, cut } = await readTrajectories(chosen, (share) => { bar.value = share; });
    if (file !== chosen) return;
    recorded = trajectories;
    const won = trajectories.filter((trajectory) => trajectory.won).length;
    about(`${chosen.name}: ${header.env_id}; ${trajectories.length} trajectories, ${won} won `
      + `(agent-envs ${header.agent_envs}).${cut ? ` It ends within line ${cut}; what stands before is shown.` : ""}`);
  } catch (error) {
    if (file === chosen) about(`${chosen.name}: ${error.message}`, "problem");
  } finally {
    if (file === chosen) bar.hidden = true;
  }
  options("label", recorded.map(({ start }) => start.label ?? ""), "all");
  byId("label-field").hidden = byId("label").options.length < 3;
  choose();
  if (recorded.length > 0) byId("at").focus();
}

/** Distinct names into a <select>, keeping the one that was chosen. */
function options(id, names, first) {
  const before = byId(id).value;
  const distinct = [...new Set(names.map(String))];
  const entries = first === undefined ? [] : [made("option", { value: "", text: first })];
  byId(id).replaceChildren(...entries, ...distinct.map((name) => made("option", { value: name, text: name })));
  if (distinct.includes(before)) byId(id).value = before;
}

function wanted() {
  const label = byId("label").value;
  return recorded.filter(OUTCOMES[byId("outcome").value])
    .filter(({ start }) => !label || String(start.label) === label);
}

/** Groups that hold a wanted trajectory. */
function choose() {
  options("group", wanted().map(groupOf));
  byId("none").hidden = recorded.length === 0 || byId("group").options.length > 0;
  compare();
}

function compare() {
  shown = wanted().filter((trajectory) => groupOf(trajectory) === byId("group").value);
  const longest = Math.max(0, ...shown.map(({ steps }) => steps.length));
  byId("walk").hidden = longest === 0;
  byId("at").max = longest;
  byId("at").value = 0;
  draw();
}

async function draw() {
  const at = Number(byId("at").value);
  const mine = (drawing += 1);
  byId("at-text").textContent = `${at} of ${byId("at").max}`;
  try {
    const rows = await Promise.all(shown.map(({ steps }) => rowAt(steps, at)));
    if (mine !== drawing) return;
    byId("columns").replaceChildren(...shown.map((trajectory, place) => column(trajectory, at, rows[place])));
  } catch (error) {
    if (mine === drawing) about(`${file.name} has changed since it was opened: open it again (${error.message})`, "problem");
  }
}

function rowAt(steps, at) {
  const step = steps[at] ?? steps.at(-1);
  return step === undefined ? undefined : stepRow(file, step);
}

function column({ start, steps, won, total }, at, row) {
  const over = at >= steps.length;
  const head = [
    made("h3", { text: [start.label, `replica ${start.replica}`].filter(Boolean).join(", ") }),
    made("p", {
      text: `${won ? "won" : "not won"} in ${steps.length} steps, return ${number(total)}`, className: won ? "won" : "lost",
    }),
  ];
  if (row === undefined) return made("article", {}, ...head, made("p", { text: "no steps" }));
  const body = over ? [made("h4", { text: "after the last step" }), block(row.next_observation)] : stepParts(row);
  return made("article", { className: over ? "over" : "" }, ...head, ...body);
}

function stepParts(row) {
  const figures = made("dl", { className: "figures" });
  const validity = (valid) => [valid ? "valid" : "invalid", valid ? "" : "lost"];
  fill(figures, [
    ["reward", number(row.reward ?? 0)], ["format", ...validity(row.format_valid)], ["action", ...validity(row.action_valid)],
  ]);
  const parts = [made("h4", { text: "observation" }), block(row.observation)];
  if (row.prompt !== undefined) {
    const prompt = made("details", { open: promptsOpen }, made("summary", { text: "prompt" }), block(row.prompt));
    prompt.addEventListener("toggle", () => { promptsOpen = prompt.open; });
    parts.push(prompt);
  }
  if (row.completion !== row.action) parts.push(made("h4", { text: "reply" }), block(row.completion));
  parts.push(made("h4", { text: "action" }), block(row.action), figures);
  if (row.error) parts.push(made("p", { text: row.error, className: "problem" }));
  return parts;
}

/** Text as it is; a recorded picture is only its digest and shape. */
function block(value) {
  if (value?.sha256 && value.shape) {
    return made("p", { text: `picture, ${value.shape.join(" × ")} (not in the file)`, title: value.sha256 });
  }
  return made("pre", { text: typeof value === "string" ? value : JSON.stringify(value ?? null), tabIndex: 0 });
}

function about(text, className = "") {
  byId("about").textContent = text;
  byId("about").className = className;
}

function moveTo(at) {
  byId("at").value = at; // the range keeps it between its ends
  draw();
}

function turnGroup(turn) {
  const place = byId("group").selectedIndex + turn;
  if (place < 0 || place >= byId("group").options.length) return;
  byId("group").selectedIndex = place;
  compare();
}

const KEYS = {
  ArrowRight: () => moveTo(Number(byId("at").value) + 1),
  ArrowLeft: () => moveTo(Number(byId("at").value) - 1),
  Home: () => moveTo(0),
  End: () => moveTo(Number(byId("at").max)),
  PageDown: () => turnGroup(1),
  PageUp: () => turnGroup(-1),
};

function onKey(event) {
  const taken = ["SELECT", "BUTTON"].includes(event.target.tagName) && event.target.closest("nav, label");
  if (byId("replay").hidden || taken || !(event.key in KEYS) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  KEYS[event.key]();
}

export function startReplay() {
  byId("file").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); });
  byId("outcome").addEventListener("change", choose);
  byId("label").addEventListener("change", choose);
  byId("group").addEventListener("change", compare);
  byId("at").addEventListener("input", draw);
  byId("back").addEventListener("click", KEYS.ArrowLeft);
  byId("on").addEventListener("click", KEYS.ArrowRight);
  document.addEventListener("keydown", onKey);
}
