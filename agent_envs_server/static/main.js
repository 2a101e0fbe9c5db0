// Tabs, and the two panels behind them.
import { startPlay } from "./play.js";
import { startReplay } from "./replay.js";

const tabs = [...document.querySelectorAll("[role=tab]")];

function show(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
}

for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => show(tab));
  tab.addEventListener("keydown", (event) => {
    const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (turn === undefined) return;
    const next = tabs[(place + turn + tabs.length) % tabs.length];
    show(next);
    next.focus();
  });
}
show(tabs[0]);
startPlay();
startReplay();
