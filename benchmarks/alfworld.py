"""``python -m benchmarks.alfworld``: our ALFWorld's figures beside the original's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent_envs.core.errors import DataError
from benchmarks import alfworld_groups as groups
from benchmarks import alfworld_single as single
from benchmarks import peer, report
from benchmarks.alfworld_kitchen import Kitchen, largest_kitchen, random_walk
from benchmarks.report import Row
from benchmarks.timing import ONE_THREAD

WALK = 2000  # steps of the random walk through the kitchen

out, err = Console(), Console(stderr=True)
if not out.is_terminal:
    out.width = 110  # a file or a pipe gets the table unbroken

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

Data = Annotated[
    Path | None,
    typer.Option(
        envvar="ALFWORLD_DATA",
        help="Official download: the folder that holds json_2.1.1/. Default: generated games; "
        "'load' then means generate and compile.",
    ),
]
PeerPython = Annotated[
    str | None,
    typer.Option(
        help="Python interpreter that has textworld[pddl] and alfworld. Default: this one if it "
        "has them; otherwise their columns are left out."
    ),
]
WithPeer = Annotated[
    bool, typer.Option("--peer/--no-peer", help="Measure TextWorld too (two minutes).")
]
Repetitions = Annotated[int, typer.Option(min=1, help="Repetitions of each of our measures.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, all samples.")]


@app.command()
def main(
    data: Data = None,
    peer_python: PeerPython = None,
    with_peer: WithPeer = True,
    repetitions: Repetitions = 5,
    as_json: AsJson = False,
) -> None:
    """Measure load, reset, step, group throughput and memory of ALFWorld (on Linux).

    Figures are CPU time where the unit does not say "wall": best and median of all repetitions. On
    a shared machine the best is the figure, and the distance to the median is the noise. A ratio is
    TextWorld's best / our best, on the same game and the same walk through it.

    Single-environment figures come from the largest kitchen of the data; group figures from 16
    tasks x 8 replicas that play one episode of random admissible actions.

    Example: `python -m benchmarks.alfworld --data ~/alfworld --peer-python ~/tw/bin/python`
    """
    os.environ.update(ONE_THREAD)
    try:
        kitchen = largest_kitchen(data)
    except DataError as error:
        raise typer.BadParameter(str(error)) from error
    walk = random_walk(kitchen.compile(), WALK)
    rows, notes = list(_ours(kitchen, walk, repetitions)), list[str]()
    if with_peer:
        try:
            with err.status("TextWorld"):
                found = peer.measure(peer_python, kitchen.path, walk, kitchen.compile())
            rows = [replace(row, peer=found.figures.get(row.peer_key)) for row in rows]
            notes = found.notes()
        except peer.PeerMissing as reason:
            notes = [str(reason)]
    show = _print_json if as_json else _print_table
    show(kitchen, rows, notes)


def _ours(kitchen: Kitchen, walk: list[str], repetitions: int) -> Iterator[Row]:
    """All rows, in the order of the table."""
    options = kitchen.options
    measures: dict[str, Callable[[], list[Row]]] = {
        "load": lambda: [single.load(kitchen, repetitions)],
        "reset": lambda: [single.engine_reset(kitchen, repetitions)],
        "env.reset": lambda: [single.env_reset(kitchen, repetitions)],
        "step": lambda: [single.engine_step(kitchen, walk, repetitions)],
        "env.step": lambda: [single.env_step(kitchen, walk, repetitions)],
        "group": lambda: [groups.group_steps(options, repetitions)],
        "prompts": lambda: [groups.agent_steps(options, repetitions)],
        "workers": lambda: groups.process_steps(options, repetitions),
        "memory": lambda: groups.memory(options, repetitions),
    }
    for name, measure in measures.items():
        with err.status(name):
            yield from measure()


def _print_table(kitchen: Kitchen, rows: list[Row], notes: list[str]) -> None:
    out.print(report.table(f"{report.machine()}\n{kitchen.name}", "TextWorld", rows))
    for note in notes:
        out.print(note, markup=False, highlight=False)


def _print_json(kitchen: Kitchen, rows: list[Row], notes: list[str]) -> None:
    document = {
        "machine": report.machine(),
        "game": kitchen.name,
        "rows": [report.as_dict(row) for row in rows],
        "notes": notes,
    }
    typer.echo(json.dumps(document, indent=2))


if __name__ == "__main__":
    app()
