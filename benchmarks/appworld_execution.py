"""AppWorld's executors: many sessions, milliseconds a step, memory idle and under bombs, time to start.

``python -m benchmarks.appworld_execution [--sessions 128] [--steps 10] [--json]``

A step is a short program with three API calls that the host answers at once. Times are wall times and
depend on what else the machine does; memory is the proportional set size of all processes of the executor.
Executors whose package is absent are left out, with a line that says so.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agent_envs.core.errors import MissingExtra
from agent_envs.envs.appworld.execution import Executor, Limits, Session, executor_of
from benchmarks.report import machine

NOW = "2023-05-18T12:00:00"
APPS = {f"app_{i}": [f"show_{j}" for j in range(15)] for i in range(9)}
STEP = """
found = []
for page in range(3):
    found += apis.app_1.show_2(page_index=page)["items"]
titles = sorted({row["title"] for row in found if row["id"] % 2})
print(len(found), titles[:3])
"""
BOMB = "x = bytearray(230 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
PAGE = {"items": [{"id": i, "title": f"title {i}", "liked": False} for i in range(5)]}
console = Console()


def answer(app: str, api: str, arguments: dict[str, Any]) -> Any:
    return PAGE


def descendants(pid: int) -> Iterator[int]:
    """Process ids of all processes below ``pid`` (Linux)."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text()
        except OSError:  # the thread just ended
            continue
        for child in map(int, children.split()):
            yield child
            yield from descendants(child)


def memory_mb() -> float:
    """Proportional set size of all our child processes in MB."""
    total = 0
    for pid in descendants(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def opened(executor: Executor, count: int, **limits: Any) -> list[Session]:
    return [
        executor.session(now=NOW, seed=i, apps=APPS, limits=Limits(**limits)) for i in range(count)
    ]


def timed(session: Session, code: str) -> float:
    """Milliseconds of one execution, which must succeed."""
    begun = time.perf_counter()
    outcome = session.run(code, answer)
    spent = (time.perf_counter() - begun) * 1000
    assert not outcome.failed, outcome.output
    return spent


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


def measure(name: str, count: int, steps: int) -> dict[str, Any]:
    """All figures of one executor."""
    executor = executor_of(name)
    begun = time.perf_counter()
    (first,) = opened(executor, 1)
    timed(first, "x = 1")
    started = time.perf_counter() - begun
    sessions = opened(executor, count)
    fresh = [timed(session, "x = 1") for session in sessions]
    idle = memory_mb()
    stepped = [timed(session, STEP) for _ in range(steps) for session in sessions]
    with ThreadPoolExecutor(8) as pool:
        begun = time.perf_counter()
        list(pool.map(lambda session: timed(session, STEP), sessions))
        together = time.perf_counter() - begun
    figures = {
        "start of the executor, s": round(started, 3),
        "first execution of a session, ms": spread(fresh),
        "step with 3 API calls, ms": spread(stepped),
        "steps/s with 8 threads": round(count / together),
        "memory idle, MB": round(idle),
        "memory after the steps, MB": round(memory_mb()),
    }
    if name == "process":
        figures |= bombs(executor)
    executor.close()
    return figures


def bombs(executor: Executor) -> dict[str, Any]:
    """16 sessions at once that each take what they may; memory is looked at every 20 ms."""
    sessions, highest = opened(executor, 16, seconds=30), 0.0
    with ThreadPoolExecutor(16) as pool:
        running = [pool.submit(session.run, BOMB, answer) for session in sessions]
        while not all(future.done() for future in running):
            highest = max(highest, memory_mb())
            time.sleep(0.02)
    outcomes = [future.result() for future in running]
    return {
        "highest memory under 16 bombs of 230 MB, MB": round(highest),
        "bombs ended by the group's budget": sum(outcome.lost for outcome in outcomes),
    }


def main(
    sessions: Annotated[int, typer.Option(help="sessions of each executor")] = 128,
    steps: Annotated[int, typer.Option(help="steps of each session")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure every executor that is not for debugging."""
    figures: dict[str, dict[str, Any]] = {}
    for name in ("process", "monty"):
        try:
            figures[name] = measure(name, sessions, steps)
        except MissingExtra as error:
            console.print(f"{name}: left out. {error}", markup=False)
    if as_json:
        print(json.dumps({"machine": machine(), "sessions": sessions, "figures": figures}))
        return
    shown = Table(title=f"AppWorld's executors, {sessions} sessions, {machine()}")
    shown.add_column("measure")
    for name in figures:
        shown.add_column(name, justify="right")
    for measured in dict.fromkeys(key for column in figures.values() for key in column):
        cells = [column.get(measured, "") for column in figures.values()]
        shown.add_row(
            measured,
            *(f"{c['p50']} / {c['p99']}" if isinstance(c, dict) else str(c) for c in cells),
        )
    console.print(shown)


if __name__ == "__main__":
    typer.run(main)
