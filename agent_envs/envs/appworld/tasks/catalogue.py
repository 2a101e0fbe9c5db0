"""The embedded tasks: which there are, and how an id becomes a task again."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache

from agent_envs.core.errors import OptionError
from agent_envs.core.seeding import keyed_seed
from agent_envs.core.tasks import ListedTasks
from agent_envs.envs.appworld.api import Brand, branded
from agent_envs.envs.appworld.build import build_world, supervisors
from agent_envs.envs.appworld.store import Overlay, World
from agent_envs.envs.appworld.tasks.family import FAMILIES, Draw, Family, NoTask
from agent_envs.envs.appworld.tasks.goals import Goal

VARIANTS = 3  # of a scenario: the same world, other people, slots and words
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Split:
    """Scenarios of a split: their numbers never meet another split's, nor do their worlds.

    Args:
        scenarios: of each family.
        first: number of the first one.
        worlds: seeds of the worlds that they take turns in.
        challenge: of the families that are kept for it.
    """

    scenarios: int
    first: int
    worlds: tuple[int, ...]
    challenge: bool = False


SPLITS = {
    "train": Split(10, 0, (0, 1, 2, 3)),
    "dev": Split(2, 100, (4,)),
    "test_normal": Split(4, 200, (5, 6)),
    "test_challenge": Split(12, 300, (7, 8), challenge=True),
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task that can be played."""

    id: str
    family: Family
    world: World
    supervisor: int
    instruction: str
    goal: Goal
    solution: tuple[str, ...]


class Catalogue(ListedTasks):
    """The splits of the embedded tasks; ids are ``FAMILY_SCENARIO_VARIANT``."""

    def __init__(self) -> None:
        super().__init__({name: tuple(_ids(split)) for name, split in SPLITS.items()})

    def task_type(self, task_id: str) -> str:
        return f"difficulty {parse(task_id)[0].difficulty}"


def scenario_of(task_id: str) -> str:
    """The scenario that a task is a variant of; also of the real benchmark's ids (``82e2fac_1``)."""
    return task_id.rpartition("_")[0]


def _ids(split: Split) -> list[str]:
    families = [family for family in FAMILIES.values() if family.challenge == split.challenge]
    return [
        f"{family.name}_{scenario}_{variant}"
        for scenario in range(split.first, split.first + split.scenarios)
        for family in families
        for variant in range(1, VARIANTS + 1)
    ]


def parse(task_id: str) -> tuple[Family, int, int]:
    """Family, scenario and variant; OptionError where there is no such task."""
    name, scenario, variant = [*task_id.rsplit("_", 2), "", ""][:3]
    family = FAMILIES.get(name)
    if (
        family is None
        or not re.fullmatch("0|[1-9][0-9]{0,8}", scenario)  # one id for a task
        or variant not in ("1", "2", "3")
    ):
        raise OptionError(f"no embedded task {task_id!r:.80}; ids are FAMILY_SCENARIO_VARIANT")
    return family, int(scenario), int(variant)


@lru_cache(maxsize=8)
def _world(seed: int, brand: Brand) -> World:
    return build_world(seed, brand)


def world_of(scenario: int, brand: Brand) -> World:
    """The world that a scenario is set in."""
    for split in SPLITS.values():
        if split.first <= scenario < split.first + split.scenarios:
            return _world(split.worlds[(scenario - split.first) % len(split.worlds)], brand)
    # numbers beyond the splits: a world of their own for every ten
    return _world(1_000 + scenario // 10, brand)


@lru_cache(maxsize=512)
def task_of(task_id: str, brand: Brand = "real") -> Task:
    """The task; the same in every process.

    Raises:
        OptionError: there is no such task.
    """
    family, scenario, variant = parse(task_id)
    world = world_of(scenario, brand)
    db = Overlay(world)
    people = supervisors(world)
    name = int.from_bytes(family.name.encode(), "big")
    root = keyed_seed(name % 2**64, scenario)
    for attempt in range(_TRIES):
        me = people[(keyed_seed(root, 0) + variant + attempt // 8) % len(people)]
        draw = Draw(random.Random(keyed_seed(root, variant, attempt)), world, db, me)
        try:
            plan = family.draw(draw)
        except NoTask:
            continue
        phrase = family.phrases[(scenario + variant) % len(family.phrases)]
        instruction = branded(phrase.format(**plan.slots), brand)
        solution = tuple(branded(piece, brand) for piece in plan.solution)
        return Task(task_id, family, world, me, instruction, plan.goal, solution)
    raise OptionError(f"the world of scenario {scenario} has no task of family {family.name}")
