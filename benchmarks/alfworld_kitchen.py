"""The one large game that single-environment figures are measured on, and a walk through it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agent_envs.envs.alfworld import ALFWorldEnv, Engine, generate, read_game_file
from agent_envs.envs.alfworld.game import Game
from agent_envs.envs.alfworld.generator import choose
from agent_envs.envs.alfworld.library import GAME_FILE, FolderTasks

KITCHEN_SCENES = range(1, 31)  # ALFRED numbers its rooms by kind; kitchens come first
_GENERATED_SEARCHED = 100  # games of the generated split "train" among which the largest is taken


@dataclass(frozen=True, slots=True)
class Kitchen:
    """A kitchen game: the ``index``-th of ``split``; ``path`` is None where it is generated."""

    split: str
    index: int
    path: Path | None
    options: Mapping[str, Any]  # of the environment: where its tasks come from

    @property
    def name(self) -> str:
        if self.path is None:
            return f"generated full kitchen {self.split}/{self.index}"
        return f"{self.path.parent.parent.name}, {self.path.stat().st_size / 1000:.0f} KB"

    def compile(self) -> Game:
        """A game with empty memos, as after every load."""
        if self.path is None:
            return Game(generate(self.split, "full", self.index))
        return Game(read_game_file(self.path))

    def env(self) -> ALFWorldEnv:
        """An environment without a step limit, whose game is loaded already."""
        env = ALFWorldEnv(split=self.split, max_steps=None, **self.options)
        env.reset(seed=0, options={"task_index": self.index})
        return env


def largest_kitchen(data: Path | None) -> Kitchen:
    """The largest kitchen of a download (by file size), else of 100 generated games (by facts)."""
    return _generated() if data is None else _official(data)


def _official(data: Path) -> Kitchen:
    tasks = FolderTasks(data)
    sizes: dict[tuple[str, int], int] = {}
    for split in tasks.splits:
        for index in range(tasks.count(split) or 0):
            task_id = tasks.task_id(split, index)
            if _scene(task_id) in KITCHEN_SCENES:
                sizes[split, index] = (tasks.root / task_id / GAME_FILE).stat().st_size
    if not sizes:
        raise ValueError(f"no kitchen (scenes 1 to 30) in {data}")
    split, index = max(sizes, key=sizes.__getitem__)
    path = tasks.root / tasks.task_id(split, index) / GAME_FILE
    return Kitchen(split, index, path, {"data_dir": data})


def _scene(task_id: str) -> int:
    """``train/pick_...-CounterTop-30/trial_...`` -> 30."""
    number = task_id.split("/")[1].rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _generated() -> Kitchen:
    def facts(index: int) -> int:
        return sum(map(len, generate("train", "full", index).facts.values()))

    games = range(_GENERATED_SEARCHED)
    kitchens = [i for i in games if choose("train", "full", i)[0].layout.room == "kitchen"]
    return Kitchen("train", max(kitchens, key=facts), None, {"difficulty": "full"})


def random_walk(game: Game, length: int) -> list[str]:
    """``length`` random admissible commands that do not solve the game: first seed that does so."""
    for seed in count():
        draws, engine, commands = random.Random(seed), Engine(game), list[str]()
        while len(commands) < length and not engine.won:
            commands.append(draws.choice(engine.admissible))
            engine.act(commands[-1])
        if not engine.won:
            return commands
    raise AssertionError("endless")
