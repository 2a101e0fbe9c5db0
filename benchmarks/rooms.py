"""Check generated Sokoban rooms by the thousand: ``python -m benchmarks.rooms [--rooms 1000]``.

Every room must be unsolved at the start, have no box on a target, belong to its split and be solved
by the solver; the share of duplicates is reported.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.progress import track

from agent_envs.envs.sokoban.generator import generate, split_of
from agent_envs.envs.sokoban.room import Room
from agent_envs.envs.sokoban.solver import solve


def faults(room: Room, split: str) -> list[str]:
    """What is wrong with a room."""
    found = []
    if room.boxes & room.targets:
        found.append("a box starts on a target")
    if split_of(room) != split:
        found.append("it is of another split")
    if solve.__wrapped__(room, room.player, room.boxes) is None:
        found.append("not solved")
    return found


def main(
    rooms: Annotated[int, typer.Option(help="Rooms per size.")] = 1000,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "train",
) -> None:
    """Generate, check and solve rooms of four sizes; exit code 1 on any fault."""
    bad = 0
    for side, boxes, limit in ((6, 1, 30), (6, 2, 30), (8, 3, 80), (10, 4, 120)):
        seen: set[Room] = set()
        for index in track(range(rooms), f"{side}x{side}/{boxes}", transient=True):
            room = generate.__wrapped__(side, side, boxes, split, index, limit)
            seen.add(room)
            for fault in faults(room, split):
                bad += 1
                print(f"{side}x{side}/{boxes} {split} {index}: {fault}")
        print(f"{side}x{side}/{boxes}: {rooms} rooms checked, {rooms - len(seen)} duplicates")
    print(f"{bad} faults")
    sys.exit(bool(bad))


if __name__ == "__main__":
    typer.run(main)
