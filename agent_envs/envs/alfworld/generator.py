"""New household games by seed: the embedded default of ``AgentEnv/ALFWorld-v0``.

A *layout* (room kind, number) fixes receptacles, which of them share a place, what opens and the
start; the seed then draws goal and contents. Games are solvable by construction. The recipe and its
numbers: ``ALFWORLD_GENERATOR.md`` sections 9 and 10.

All draws go through :class:`Draws`, which uses only ``random.Random.random()``: Python guarantees
that sequence for a given seed on every version and platform.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from agent_envs.core.errors import one_of
from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.alfworld.problem import Goal, Problem
from agent_envs.envs.alfworld.tables import (
    SENTENCES,
    TREATMENTS,
    placed_shares,
    standard_pairs,
    tables,
)

T = TypeVar("T")
Facts = dict[str, list[tuple[str, str]]]

ROOMS = ("kitchen", "livingroom", "bedroom", "bathroom")
LAYOUTS = 28  # a room kind has as many layouts as the original has scenes
HELD_OUT = 27  # the layout of each room kind that only valid_unseen uses
SPLITS: dict[str, int | None] = {"train": None, "valid_seen": 140, "valid_unseen": 134}
DIFFICULTIES: dict[
    str, tuple[int, int] | None
] = {  # at most (receptacles, objects); None: a full room
    "toy": (3, 5),
    "easy": (6, 12),
    "medium": (12, 25),
    "full": None,
}
_LAYOUT_KEY, _GAME_KEY = 0x1A707, 0x6A3E  # domain separation of the two kinds of seeds
SHARED_PLACE = 0.12  # share of receptacles that stand where the previous one stands
COOL_IN_FRIDGE = 0.05  # 441 of some 8,000 objects in fridges start cool


class Draws:
    """A deterministic stream of choices."""

    def __init__(self, *key: int) -> None:
        self._random = random.Random(keyed_seed(*key)).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def index(self, count: int) -> int:
        return int(self._random() * count)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.index(len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[float]) -> T:
        point = self._random() * sum(weights)
        for item, weight in zip(items, weights, strict=True):
            point -= weight
            if point < 0:
                return item
        return items[-1]

    def count(self, low: int, mean: float, high: int) -> int:
        """low + Binomial(high - low, ...) with the given mean."""
        span = high - low
        return low + sum(self.chance((mean - low) / span) for _ in range(span)) if span else low

    def shuffled(self, items: Sequence[T]) -> list[T]:
        rest, result = list(items), []
        while rest:
            result.append(rest.pop(self.index(len(rest))))
        return result


@dataclass(frozen=True, slots=True)
class Receptacle:
    """One receptacle of a layout: its id, class (``Cabinet``), place id and whether it opens."""

    id: str
    kind: str
    place: str
    openable: bool


@dataclass(frozen=True, slots=True)
class Layout:
    room: str
    receptacles: tuple[Receptacle, ...]
    start: str

    def of_kind(self, kind: str) -> list[Receptacle]:
        return [r for r in self.receptacles if r.kind == kind]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a seed decides first: the layout and the goal (object class, receptacle or lamp class)."""

    task_type: str
    layout: Layout
    thing: str
    target: str


class _Ids:
    """ALFRED-like ids with random coordinates: unique, their string order decides the numbering."""

    def __init__(self, draws: Draws) -> None:
        self._draws, self._used = draws, set[str]()

    def _unique(self, make: str, parts: int) -> str:
        while True:
            identifier = make.format(*(self._coordinate() for _ in range(parts)))
            if identifier not in self._used:
                self._used.add(identifier)
                return identifier

    def _coordinate(self) -> str:
        sign = "plus" if self._draws.chance(0.5) else "minus"
        value = self._draws.index(400)
        return f"_{sign}_{value // 100:02d}_dot_{value % 100:02d}"

    def of(self, kind: str) -> str:
        head, basin, _ = kind.partition("Basin")
        tail = f"_bar_{kind}" if basin else ""
        return self._unique(head + "_bar_{}_bar_{}_bar_{}" + tail, 3).lower()

    def place(self) -> str:
        return self._unique("loc_bar_{}_bar_{}_bar_1_bar_30", 2).lower()


@lru_cache(maxsize=len(ROOMS) * LAYOUTS)
def layout(room: str, number: int) -> Layout:
    """The fixed part of a room: same arguments, same layout, for ever."""
    draws = Draws(_LAYOUT_KEY, ROOMS.index(room), number)
    ids = _Ids(draws)
    kinds: list[str] = []
    for kind, (presence, low, mean, high) in tables()["rooms"][room]["receptacles"].items():
        if draws.chance(presence):
            kinds += [kind] * draws.count(low, mean, high)
    start, place = ids.place(), ids.place()
    receptacles = []
    for kind in draws.shuffled(kinds):
        if not draws.chance(SHARED_PLACE):
            place = ids.place()
        openable = draws.chance(tables()["openable"].get(kind, 0.0))
        receptacles.append(Receptacle(ids.of(kind), kind, place, openable))
    return Layout(room, tuple(receptacles), start)


def choose(split: str, difficulty: str, index: int) -> tuple[Choice, Draws]:
    """Draw task type, room, layout and goal pair; the stream goes on with the contents."""
    one_of("split", split, SPLITS)
    one_of("difficulty", difficulty, DIFFICULTIES)
    draws = Draws(_GAME_KEY, list(SPLITS).index(split), list(DIFFICULTIES).index(difficulty), index)
    pairs = tables()["goal_rooms"]
    while True:
        task_type, _, room = draws.weighted(list(pairs), list(pairs.values())).partition("|")
        number = HELD_OUT if split == "valid_unseen" else draws.index(HELD_OUT)
        found = layout(room, number)
        goals = [
            (thing, target, count)
            for thing, target, count in tables()["goals"][task_type]
            if _fits(task_type, found, thing, target)
        ]
        if goals:
            thing, target, _ = draws.weighted(goals, [count for *_, count in goals])
            return Choice(task_type, found, thing, target), draws


@lru_cache(maxsize=8192)
def task_type_of(split: str, difficulty: str, index: int) -> str:
    """The task type of a generated game, without generating it."""
    return choose(split, difficulty, index)[0].task_type


def _fits(task_type: str, room: Layout, thing: str, target: str) -> bool:
    kinds = {r.kind for r in room.receptacles}
    if thing not in tables()["rooms"][room.room]["objects"]:
        return False
    if task_type in TREATMENTS and TREATMENTS[task_type][1] not in kinds:
        return False
    if task_type == "look_at_obj_in_light":
        return any(_weight(target, kind) for kind in kinds) and bool(_homes(thing, room, ""))
    return target in kinds and bool(_homes(thing, room, target))


def _weight(thing: str, kind: str) -> float:
    count: int = tables()["contents"].get(kind, {}).get(thing, 0)
    return count / tables()["instances"][kind] if count else 0.0


def _homes(thing: str, room: Layout, target: str) -> list[Receptacle]:
    """Receptacles where a target object may lie at the start, none of them of the target's kind."""
    others = [r for r in room.receptacles if r.kind != target]
    return [r for r in others if _weight(thing, r.kind)] or [
        r for r in others if thing in tables()["accepts"].get(r.kind, ())
    ]


def generate(split: str, difficulty: str, index: int) -> Problem:
    """The ``index``-th game of a split at a difficulty."""
    choice, draws = choose(split, difficulty, index)
    return _Writer(choice, draws, DIFFICULTIES[difficulty]).write()


class _Writer:
    """Fills a layout with objects and writes facts, goal and walkthrough."""

    def __init__(self, choice: Choice, draws: Draws, limit: tuple[int, int] | None) -> None:
        self.choice, self.draws = choice, draws
        self.wanted = 2 if choice.task_type == "pick_two_obj_and_place" else 1
        self.is_look = choice.task_type == "look_at_obj_in_light"
        self.target = "" if self.is_look else choice.target
        self.limit = limit
        self.room = choice.layout if limit is None else self._reduced(limit[0])
        self.ids = _Ids(draws)
        self.placed: list[
            tuple[str, str, Receptacle | None]
        ] = []  # id, class, where (None: scenery)

    def _reduced(self, size: int) -> Layout:
        """A smaller room that keeps a source, the target and the appliance or lamp holder."""
        choice, draws, full = self.choice, self.draws, self.choice.layout
        keep = [draws.choice(_homes(choice.thing, full, self.target))]
        if self.is_look:
            holders = [r for r in full.receptacles if _weight(choice.target, r.kind)]
            keep.append(draws.choice(holders))
        else:
            keep.append(draws.choice(full.of_kind(self.target)))
        if choice.task_type in TREATMENTS:
            keep.append(draws.choice(full.of_kind(TREATMENTS[choice.task_type][1])))
        others = draws.shuffled([r for r in full.receptacles if r not in keep])
        kept = dict.fromkeys(keep)
        for r in others[: max(0, size - len(kept))]:
            kept[r] = None
        return Layout(full.room, tuple(r for r in full.receptacles if r in kept), full.start)

    def write(self) -> Problem:
        for thing, number in self._inventory().items():
            for _ in range(number):
                self._place(thing)
        choice = self.choice
        words = choice.thing.lower(), choice.target.lower()
        return Problem(
            task=self.draws.choice(SENTENCES[choice.task_type]).format(*words),
            facts=self._facts(),
            goal=self._goal(),
        )

    def _inventory(self) -> Counter[str]:
        """How many objects of each class, the goal's ones guaranteed."""
        rows, draws = tables()["rooms"][self.choice.layout.room]["objects"], self.draws
        counts = Counter[str]()
        for thing, (presence, low, mean, high) in rows.items():
            if draws.chance(presence):
                counts[thing] = draws.count(low, mean, high)
        needed = Counter({self.choice.thing: self.wanted})
        if self.is_look:
            needed[self.choice.target] = 1
        if self.limit is not None:
            pool = draws.shuffled(sorted((counts - needed).elements()))
            counts = needed + Counter(pool[: max(0, self.limit[1] - needed.total())])
        return counts | needed

    def _place(self, thing: str) -> None:
        where = self._where(thing)
        self.placed.append((self.ids.of(thing), thing, where))

    def _where(self, thing: str) -> Receptacle | None:
        if thing == self.choice.thing:
            homes = _homes(thing, self.room, self.target)
            if self._outside() >= self.wanted:
                homes = self._free(thing) or homes
        elif thing == self.choice.target or self.draws.chance(placed_shares()[thing]):
            homes = [r for r in self.room.receptacles if _weight(thing, r.kind)]
        else:
            return None
        if not homes:
            return None
        # an equal weight for homes that only canContain vouches for
        return self.draws.weighted(homes, [_weight(thing, r.kind) or 0.01 for r in homes])

    def _outside(self) -> int:
        """Goal objects that already lie outside the target's kind."""
        return sum(t == self.choice.thing for _, t, _ in self.placed)

    def _free(self, thing: str) -> list[Receptacle]:
        """Homes of a surplus goal object: anywhere that does not win the game at once."""
        place_only = self.choice.task_type == "pick_and_place_simple"
        taken = {r for _, t, r in self.placed if t == thing}
        return [
            r
            for r in self.room.receptacles
            if _weight(thing, r.kind)
            and (r.kind != self.target or not (place_only or (self.wanted == 2 and r in taken)))
        ]

    def _goal(self) -> Goal:
        thing, target = self.choice.thing.lower() + "type", self.choice.target.lower() + "type"
        if self.is_look:
            return Goal("look", thing, target)
        if self.wanted == 2:
            return Goal("two", thing, target)
        properties = {
            "clean": ("cleanable", "isclean"), "heat": ("heatable", "ishot"), "cool": ("coolable", "iscool")
        }  # fmt: skip
        verb = TREATMENTS.get(self.choice.task_type, ("",))[0]
        return Goal("place", thing, target, properties.get(verb, ()))

    def _facts(self) -> Facts:
        facts: Facts = {"atlocation": [("agent1", self.room.start)]}

        def add(name: str, first: str, second: str = "") -> None:
            facts.setdefault(name, []).append((first, second))

        for r in self.room.receptacles:
            add("receptacletype", r.id, r.kind.lower() + "type")
            add("receptacleatlocation", r.id, r.place)
            if r.openable:
                add("openable", r.id)
        for identifier, thing, where in self.placed:
            add("objecttype", identifier, thing.lower() + "type")
            place = where.place if where else self.draws.choice(self.room.receptacles).place
            add("objectatlocation", identifier, place)
            if where:
                add("inreceptacle", identifier, where.id)
            for name in tables()["properties"][thing]:
                add(name.lower(), identifier)
            cool = (
                where is not None and where.kind == "Fridge" and self.draws.chance(COOL_IN_FRIDGE)
            )
            if cool and "coolable" in tables()["properties"][thing]:
                add("iscool", identifier)
        facts["cancontain"] = can_contain(facts)
        return facts


def can_contain(facts: Mapping[str, Iterable[tuple[str, str]]]) -> list[tuple[str, str]]:
    """ALFWorld's global table restricted to the types in the scene, in a fixed order."""
    kinds = {kind for _, kind in facts.get("receptacletype", ())}
    things = {kind for _, kind in facts.get("objecttype", ())}
    return sorted((r, o) for r, o in standard_pairs() if r in kinds and o in things)
