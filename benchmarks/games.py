"""Sokoban and the card games, against EnvPool, gym-sokoban and a naive baseline in the same run.

``python -m benchmarks.games [--envpool-python PY] [--gym-sokoban-python PY]``

All figures are CPU time of one process; best and median of five.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from rich.console import Console

import agent_envs
from agent_envs.envs.sokoban.generator import generate
from agent_envs.envs.sokoban.solver import difficulty
from benchmarks.report import Row, machine, table
from benchmarks.timing import ONE_THREAD, Samples

REPEATS = 5


def rate(work: Callable[[], int], seconds: float) -> Samples:
    """Units of ``work`` per CPU second, five times."""
    rates = []
    for _ in range(REPEATS):
        done, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds:
            done += work()
        rates.append(done / spent)
    return Samples(rates, higher_is_better=True)


def duration(work: Callable[[], Any], count: int) -> Samples:
    """Microseconds of CPU time for one call, five times."""
    values = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(count):
            work()
        values.append((time.process_time() - start) / count * 1e6)
    return Samples(values)


def sokoban_steps(env_id: str, seconds: float) -> Samples:
    """16 x 8 groups, text observations and all info keys (``room_state`` included)."""
    group = agent_envs.make_group(env_id, 16, 8, max_steps=None)
    group.reset(seed=0)
    draw = random.Random(0)
    names = ("up", "down", "left", "right")
    turns = [[draw.choice(names) for _ in range(group.num_envs)] for _ in range(64)]

    def work() -> int:
        for actions in turns:
            group.step(actions)
        group.reset(seed=0)  # rooms that are there already, as EnvPool's are; new ones: see below
        return len(turns) * group.num_envs

    work()
    return rate(work, seconds)


def resets(side: int, boxes: int, limit: int, count: int) -> list[float]:
    """Milliseconds of CPU time for each of ``count`` new rooms."""
    values = []
    for index in range(count):
        start = time.process_time()
        generate.__wrapped__(side, side, boxes, "train", index, limit)
        values.append((time.process_time() - start) * 1e3)
    return sorted(values)


def pictures() -> list[Row]:
    """A full 6x6 frame, and a 10x10 frame of which only changed tiles are redrawn."""
    from agent_envs.envs.sokoban.drawing import draw, redraw

    small: Any = gymnasium.make("AgentEnv/Sokoban-6x6-1box-v0").unwrapped
    small.reset(seed=0)
    codes = small._codes()
    large: Any = gymnasium.make("AgentEnv/Sokoban-10x10-4box-v0", max_steps=None).unwrapped
    large.reset(seed=0)
    before, frame = large._codes(), draw(large._codes(), 10, 10, 32)
    while large._codes() == before:
        large.step(large.expert_action())
    after = large._codes()
    return [
        Row("Sokoban 6x6, full frame 192x192", "us", duration(lambda: draw(codes, 6, 6, 32), 500)),
        Row(
            "Sokoban 10x10, changed tiles 320x320",
            "us",
            duration(lambda: redraw(frame, before, after, 10, 32), 500),
        ),
    ]


class NaivePoints:
    """The original's logic in a few lines: text glued together and evaluated by Python."""

    def __init__(self, cards: list[int], target: int) -> None:
        self.cards, self.target = cards, target
        self.formula: list[str] = []
        self.left = list(cards)

    def step(self, action: str) -> tuple[str, float, bool]:
        if action == "=":
            try:
                value = eval("".join(self.formula))
            except Exception:
                value = None
            won = value == self.target and not self.left
            return self.text(), 10.0 if won else -1.0, True
        if action.isdigit():
            if int(action) not in self.left:
                self.formula.append(" ")
                return self.text(), -1.0, False
            self.left.remove(int(action))
        self.formula.append(action)
        return self.text(), 0.0, False

    def text(self) -> str:
        return f"Cards: {self.cards}, Formula: {''.join(self.formula)}"


def card_rows(seconds: float) -> list[Row]:
    """Episodes of Points24's solution: our environment against the naive logic (no info, no text space)."""
    env: Any = gymnasium.make("AgentEnv/Points24-v0").unwrapped
    start, actions = {"cards": ["H3", "D8", "S3", "C8"]}, list("8/(3-8/3)=")

    def ours() -> int:
        env.reset(options=start)
        for action in actions:
            env.step(action)
        return len(actions)

    def naive() -> int:
        game = NaivePoints([3, 8, 3, 8], 24)
        for action in actions:
            game.step(action)
        return len(actions)

    return [
        Row("Points24 steps, resets included", "steps / CPU s", rate(ours, seconds)),
        Row("  naive logic alone", "steps / CPU s", rate(naive, seconds)),
    ]


def peer(python: str | None, name: str) -> dict[str, list[float]]:
    if python is None:
        return {}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("games_peers.py")), name, "1.0"],
        capture_output=True, text=True, check=True, env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(
    envpool_python: Annotated[
        str | None, typer.Option(help="Interpreter with envpool 1.2.5 installed.")
    ] = None,
    gym_sokoban_python: Annotated[
        str | None, typer.Option(help="Interpreter with gym 0.26, numpy<2 and gym-sokoban.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="CPU seconds per repetition.")] = 1.0,
    rooms: Annotated[int, typer.Option(help="Rooms generated per size.")] = 1000,
) -> None:
    """Measure Sokoban and the card games; peers where their interpreters are given."""
    pool, original = peer(envpool_python, "envpool"), peer(gym_sokoban_python, "gym_sokoban")

    def rival(found: dict[str, list[float]]) -> Samples | None:
        rates = found.get("steps_per_cpu_s")
        return Samples(rates, higher_is_better=True) if rates else None

    rows = [
        Row("Sokoban 6x6 16x8 groups (peer: gym-sokoban)", "steps / CPU s",
            sokoban_steps("AgentEnv/Sokoban-v0", seconds), peer=rival(original)),
        Row("Sokoban 10x10 16x8 groups (peer: EnvPool)", "steps / CPU s",
            sokoban_steps("AgentEnv/Sokoban-10x10-4box-v0", seconds), peer=rival(pool)),
        *pictures(),
        *card_rows(seconds),
    ]  # fmt: skip
    console = Console(width=110)
    console.print(table(f"games, {machine()}", "peer", rows))
    for side, boxes, limit in ((6, 1, 30), (6, 2, 30), (8, 3, 80), (10, 4, 120)):
        times = resets(side, boxes, limit, rooms)
        pushes = [
            difficulty(generate(side, side, boxes, "train", i, limit))
            for i in range(min(rooms, 100))
        ]
        console.print(
            f"new room {side}x{side}/{boxes}: {np.median(times):.1f} ms, p99 "
            f"{times[int(len(times) * 0.99)]:.1f}, max {times[-1]:.1f} (CPU); pushes median "
            f"{np.median([p for p in pushes if p is not None]):.0f}"
        )
    if original:
        console.print(f"gym-sokoban, one 10x10/4 room: {original['reset_10x10_ms']} ms")


if __name__ == "__main__":
    typer.run(main)
