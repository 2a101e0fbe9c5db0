"""Runs ``textworld_peer.py`` under the interpreter that has the original system."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.envs.alfworld import Engine
from agent_envs.envs.alfworld.game import Game
from benchmarks.timing import ONE_THREAD, Samples

REPETITIONS, STEPS = 3, 25  # a reset takes seconds there, a step a fraction of one
TIME_LIMIT = 600
HOW_TO_GET = (
    "pip install 'textworld[pddl]' alfworld (minutes to compile, Python 3.12 at most) and say "
    "--peer-python PATH"
)


class PeerMissing(Exception):
    """The peer cannot be measured; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the peer measured.

    ``same``: its observations and lists along the walk equal ours; ``process_kb``: resident memory
    of a process with one environment.
    """

    name: str
    figures: dict[str, Samples]
    same: bool
    process_kb: float

    def notes(self) -> list[str]:
        """What a reader of its figures must know."""
        same = "the same" if self.same else "NOT THE SAME"
        return [
            f"Peer: {self.name}, {REPETITIONS} repetitions, first {STEPS} steps of the walk; "
            f"observations and admissible commands {same} as ours. Its load is gym's reset; its "
            "reset without loading exists below the gym layer only.",
            f"Its memory is that of one more environment in the same process; alfworld starts a "
            f"process for each, which resides in {self.process_kb / 1024:.0f} MB.",
        ]


def measure(python: str | None, path: Path | None, walk: list[str], game: Game) -> Peer:
    """Measure the peer on the game file ``path`` along the first steps of ``walk``.

    Raises:
        PeerMissing: there is no game file, or no interpreter that can import it.
    """
    if path is None:
        raise PeerMissing("TextWorld left out, it plays game files only: say --data DIR")
    commands = walk[:STEPS]
    asked = {"game": str(path), "commands": commands, "repetitions": REPETITIONS}
    report = _run(python or _own_interpreter(), asked)
    return Peer(
        name=report["name"],
        figures={key: Samples(values) for key, values in report["figures"].items()},
        same=report["transcript"] == transcript(game, commands),
        process_kb=report["process_kb"],
    )


def transcript(game: Game, commands: list[str]) -> list[list[Any]]:
    """Observation and admissible list at the start and after each command, from our engine."""
    engine = Engine(game)
    results = [engine.reset(), *(engine.step(command) for command in commands)]
    return [[observation, admissible] for observation, admissible, _, _ in results]


def _own_interpreter() -> str:
    for module in ("textworld", "alfworld", "fast_downward"):
        if importlib.util.find_spec(module) is None:
            raise PeerMissing(f"TextWorld left out, no module {module} here: {HOW_TO_GET}")
    return sys.executable


def _run(interpreter: str, asked: dict[str, Any]) -> dict[str, Any]:
    script = Path(__file__).with_name("textworld_peer.py")
    try:
        done = subprocess.run(
            [interpreter, str(script)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            env={**os.environ, **ONE_THREAD},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"TextWorld left out, {interpreter} failed: {error}") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PeerMissing(f"TextWorld left out, {interpreter} says {reason}: {HOW_TO_GET}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
