// Walk through recorded trajectories, the replicas of a group side by side.
import { byId, fill, made, number } from "./dom.js";
import { OUTCOMES, readTrajectories } from "./trajectories.js";

let recorded = [];
let shown = [];

const groupOf = ({ start }) => `${start.label ? `${start.label}, ` : ""}group ${start.group}, seed ${start.seed}`;

async function open(file) {
  const bar = byId("reading");
  bar.hidden = false;
  try {
    const { header, trajectories } = await readTrajectories(file, (share) => { bar.value = share; });
    recorded = trajectories;
    const won = trajectories.filter((trajectory) => trajectory.won).length;
    about(`${file.name}: ${header.env_id}${header.label ? `, ${header.label}` : ""}; ${trajectories.length} `
      + `trajectories, ${won} won (agent-envs ${header.agent_envs})`);
  } catch (error) {
    recorded = [];
    about(`${file.name}: ${error.message}`, "problem");
  } finally {
    bar.hidden = true;
  }
  choose();
}

/** Groups that hold a trajectory of the wanted outcome. */
function choose() {
  const wanted = recorded.filter(OUTCOMES[byId("outcome").value]);
  const names = [...new Set(wanted.map(groupOf))];
  byId("group").replaceChildren(...names.map((name) => made("option", { value: name, text: name })));
  if (recorded.length > 0 && names.length === 0) about("No trajectory of this outcome.", "problem");
  compare();
}

function compare() {
  shown = recorded.filter(OUTCOMES[byId("outcome").value])
    .filter((trajectory) => groupOf(trajectory) === byId("group").value);
  const longest = Math.max(0, ...shown.map(({ steps }) => steps.length));
  byId("walk").hidden = longest === 0;
  byId("at").max = longest;
  byId("at").value = 0;
  draw();
}

function draw() {
  const at = Number(byId("at").value);
  byId("at-text").textContent = `${at} of ${byId("at").max}`;
  byId("columns").replaceChildren(...shown.map((trajectory) => column(trajectory, at)));
}

function column(trajectory, at) {
  const { start, steps, won, total } = trajectory;
  const over = at >= steps.length;
  const figures = made("dl", { className: "figures" });
  const parts = [
    made("h3", {
      text: `replica ${start.replica}: ${won ? "won" : "not won"} in ${steps.length} steps, return ${number(total)}`,
      className: won ? "won" : "lost",
    }),
  ];
  const step = over ? steps.at(-1) : steps[at];
  if (step === undefined) return made("article", {}, ...parts, made("p", { text: "no steps" }));
  if (over) {
    parts.push(made("h4", { text: "after the last step" }), block(step.next_observation));
    return made("article", { className: "over" }, ...parts);
  }
  fill(figures, [
    ["reward", number(step.reward)], ["format", step.format_valid ? "valid" : "invalid", step.format_valid ? "" : "lost"],
    ["action", step.action_valid ? "valid" : "invalid", step.action_valid ? "" : "lost"],
  ]);
  parts.push(made("h4", { text: "observation" }), block(step.observation));
  if (step.prompt !== undefined) {
    parts.push(made("details", {}, made("summary", { text: "prompt" }), block(step.prompt)));
  }
  parts.push(made("h4", { text: "reply" }), block(step.completion), made("h4", { text: "action" }), block(step.action), figures);
  if (step.error) parts.push(made("p", { text: step.error, className: "problem" }));
  return made("article", {}, ...parts);
}

function block(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value ?? null);
  return made("pre", { text, tabIndex: 0 });
}

function about(text, className = "") {
  byId("about").textContent = text;
  byId("about").className = className;
}

function move(turn) {
  byId("at").value = Number(byId("at").value) + turn;
  draw();
}

export function startReplay() {
  byId("file").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); });
  byId("outcome").addEventListener("change", choose);
  byId("group").addEventListener("change", compare);
  byId("at").addEventListener("input", draw);
  byId("back").addEventListener("click", () => move(-1));
  byId("on").addEventListener("click", () => move(1));
  byId("replay").addEventListener("keydown", (event) => {
    const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (turn === undefined || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
    event.preventDefault();
    move(turn);
  });
}
