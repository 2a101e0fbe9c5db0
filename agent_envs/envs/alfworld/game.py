"""A compiled, immutable game: names, numbering, masks and ready-made command strings.

Objects, receptacles and locations are small integers in the order of their ids, and every set of
them is an ``int`` used as a bit mask, so iterating a mask from its lowest bit lists things in the
engine's listing order. One ``Game`` is shared by all replicas that play it; the caches in it only
memoise pure functions of their keys.

Spec: ``ALFWORLD_ENGINE.md`` sections 2 (names), 3 (state), 4 (preconditions), 7 (text).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from agent_envs.core.actions import Actions
from agent_envs.envs.alfworld.problem import Facts, Problem, UnsupportedGame

OBJECT_FLAGS = (
    "pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable",
    "isreceptacleobject", "isclean", "ishot", "iscool", "issliced", "istoggled",
)  # fmt: skip
KNIFE_TYPES = ("knifetype", "butterknifetype")
CACHE_LIMIT = 128  # entries of a memo before it is emptied: bounds memory and the work of the GC

K = TypeVar("K")
V = TypeVar("V")

Action = tuple[str, int, int]
"""(verb, first operand, second operand); -1 where the verb has none."""


def bits(mask: int) -> Iterator[int]:
    """Indices of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def enumerate_items(items: Sequence[str]) -> str:
    """``nothing`` / ``X`` / ``A, and B`` / ``A, B, and C``: the engine's list grammar."""
    if not items:
        return "nothing"
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + ", and " + items[-1]


def class_word(identifier: str) -> str:
    """The word that names an id: up to the first ``_bar_``, plus ``basin`` for basins."""
    word = identifier.partition("_bar_")[0]
    return word + "basin" if "basin" in identifier else word


def demangle(identifiers: Iterable[str]) -> dict[str, str]:
    """Names of all ids. Numbers are popped from the end, so the first sorted id gets the highest."""
    names: dict[str, str] = {}
    numbered = sorted({i for i in identifiers if "_bar_" in i})
    words = {i: class_word(i) for i in numbered}
    left = Counter(words.values())
    for identifier in numbered:
        word = words[identifier]
        names[identifier] = f"{word} {left[word]}"
        left[word] -= 1
    return names


def _first_arguments(facts: Facts, predicates: Iterable[str]) -> set[str]:
    return {first for name in predicates for first, _ in facts.get(name, ())}


class Game:
    """Compile ``problem`` for play. ``task_id`` is carried along for messages only."""

    def __init__(self, problem: Problem, task_id: str = "") -> None:
        # the facts are not kept: masks and names say all that play needs, in a tenth of the memory
        self.task_id, self.task, self.goal = task_id, problem.task, problem.goal
        self.walkthrough, self.annotations = problem.walkthrough, problem.annotations
        self.legacy = problem.legacy
        self._name_entities(problem.facts)
        self._place_entities(problem.facts)
        self._read_goal()
        self.actions: dict[str, Action] = {
            "look": ("look", -1, -1),
            "inventory": ("inventory", -1, -1),
        }
        if not self.legacy:
            self.actions["help"] = ("help", -1, -1)
        self._middle = ["inventory", "look"] if self.legacy else ["help", "inventory", "look"]
        self._go_to = sorted(
            (self._command(f"go to {self.receptacles[r]}", ("go", r, -1)), place)
            for r, place in enumerate(self.location_of)
            if place >= 0
        )
        self._going: dict[int, list[str]] = {}
        self._contents_text: dict[tuple[int, int], str] = {}
        self._admissible: dict[tuple[int, ...], Actions] = {}

    # -- compilation -------------------------------------------------------------------------

    def _name_entities(self, facts: Facts) -> None:
        receptacles = _first_arguments(
            facts, ("receptacletype", "receptacleatlocation", "openable", "opened")
        ) | {second for _, second in facts.get("inreceptacle", ())}
        objects = _first_arguments(
            facts,
            ("objecttype", "objectatlocation", "inreceptacle", "inreceptacleobject", *OBJECT_FLAGS),
        ) | {second for _, second in facts.get("inreceptacleobject", ())}
        locations = {
            second
            for name in ("receptacleatlocation", "objectatlocation", "atlocation")
            for _, second in facts.get(name, ())
        }
        names = demangle(receptacles | objects | locations)
        self._receptacle_ids = {r: i for i, r in enumerate(sorted(receptacles))}
        self._object_ids = {o: i for i, o in enumerate(sorted(objects))}
        self._location_ids = {place: i for i, place in enumerate(sorted(locations))}
        # an id without "_bar_" keeps its id as its name, with a trailing blank and no number
        self.receptacles = [names.get(r, r + " ") for r in self._receptacle_ids]
        self.objects = [names.get(o, o + " ") for o in self._object_ids]
        self.locations = [names.get(place, place + " ") for place in self._location_ids]

    def _object_mask(self, facts: Facts, predicate: str) -> int:
        mask = 0
        for first, _ in facts.get(predicate, ()):
            mask |= 1 << self._object_ids[first]
        return mask

    def _place_entities(self, facts: Facts) -> None:
        objects, receptacles, places = self._object_ids, self._receptacle_ids, self._location_ids
        self.flags = {name: self._object_mask(facts, name) for name in OBJECT_FLAGS}
        self.openable = sum(1 << receptacles[r] for r, _ in set(facts.get("openable", ())))
        self.opened = sum(1 << receptacles[r] for r, _ in set(facts.get("opened", ())))
        self.start = places[facts["atlocation"][0][1]]
        self.location_of = [-1] * len(receptacles)
        self.here: list[tuple[int, ...]] = [()] * len(places)
        for name, place_id in facts.get("receptacleatlocation", ()):
            self.location_of[receptacles[name]] = places[place_id]
        for r, place in enumerate(self.location_of):
            if place >= 0:
                self.here[place] = (*self.here[place], r)
        self.contents = [0] * len(receptacles)
        for o, holder in facts.get("inreceptacle", ()):
            self.contents[receptacles[holder]] |= 1 << objects[o]
        self.lying = [0] * len(places)
        for o, place_id in facts.get("objectatlocation", ()):
            self.lying[places[place_id]] |= 1 << objects[o]
        self.inside: dict[int, int] = defaultdict(int)
        for inner, outer in facts.get("inreceptacleobject", ()):
            self.inside[objects[outer]] |= 1 << objects[inner]
        self._read_types(facts)

    def _read_types(self, facts: Facts) -> None:
        self.object_types: dict[str, int] = defaultdict(int)
        for o, kind in facts.get("objecttype", ()):
            self.object_types[kind] |= 1 << self._object_ids[o]
        self.receptacle_types: dict[str, int] = defaultdict(int)
        types_of: list[list[str]] = [[] for _ in self.receptacles]
        for r, kind in facts.get("receptacletype", ()):
            self.receptacle_types[kind] |= 1 << self._receptacle_ids[r]
            types_of[self._receptacle_ids[r]].append(kind)
        accepted: dict[str, int] = defaultdict(int)
        for receptacle_type, object_type in facts.get("cancontain", ()):
            accepted[receptacle_type] |= self.object_types.get(object_type, 0)
        self.accepts = [0] * len(self.receptacles)
        for number, kinds in enumerate(types_of):
            for kind in kinds:
                self.accepts[number] |= accepted[kind]
        kinds_mask = self.receptacle_types
        self.sinks = kinds_mask.get("sinkbasintype", 0) | kinds_mask.get("sinktype", 0)
        self.microwaves = kinds_mask.get("microwavetype", 0)
        self.fridges = kinds_mask.get("fridgetype", 0)
        self.knives = 0
        for kind in KNIFE_TYPES:
            self.knives |= self.object_types.get(kind, 0)

    def _read_goal(self) -> None:
        goal = self.goal
        self.goal_objects = self.object_types.get(goal.object_type, 0)
        for name in goal.properties:
            if not name.startswith("is"):
                self.goal_objects &= self.flags[name]
        self.goal_receptacles: tuple[int, ...] = ()
        self.goal_dynamic = tuple(name for name in goal.properties if name.startswith("is"))
        if goal.kind == "look":
            lamps = self.object_types.get(goal.target_type, 0) & self.flags["toggleable"]
            self.goal_lamps = lamps
        else:
            self.goal_lamps = 0
            targets = self.receptacle_types.get(goal.target_type, 0)
            self.goal_receptacles = tuple(bits(targets))
        if not self.goal_objects or not (self.goal_lamps or self.goal_receptacles):
            raise UnsupportedGame("no object or receptacle of the goal's types exists")

    # -- text --------------------------------------------------------------------------------

    @cached_property
    def intro(self) -> str:
        """The first observation."""
        everything = enumerate_items(
            ["a " + self.receptacles[r] for r, place in enumerate(self.location_of) if place >= 0]
        )
        return (
            "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
            f"around you, you see {everything}.\n\nYour task is to: {self.task}"
        )

    def list_objects(self, mask: int) -> str:
        return enumerate_items(["a " + self.objects[o] for o in bits(mask)])

    def describe(self, receptacle: int, opened: int, contents: int) -> str:
        """What ``examine R`` shows; also the tail of the arrival and opening texts."""
        key = (receptacle, contents << 1 | (opened >> receptacle & 1))
        text = self._contents_text.get(key)
        if text is None:
            text = self._describe(receptacle, opened, contents)
            _remember(self._contents_text, key, text)
        return text

    def _describe(self, receptacle: int, opened: int, contents: int) -> str:
        name, bit = self.receptacles[receptacle], 1 << receptacle
        if not self.openable & bit:
            return f"On the {name}, you see {self.list_objects(contents)}."
        if opened & bit:
            return f"The {name} is open. In it, you see {self.list_objects(contents)}."
        return f"The {name} is closed."

    # -- admissible commands -----------------------------------------------------------------

    def admissible(
        self, location: int, held: int, opened: int, contents: list[int], lying: int
    ) -> Actions:
        """Sorted admissible commands; ``held`` is -1 for empty hands, ``lying`` the objects here."""
        here = self.here[location]
        sliceable = lying if held >= 0 and self.knives >> held & 1 else 0
        key: tuple[int, ...]
        if len(here) == 1:
            r = here[0]
            key = (location, held, sliceable, contents[r] << 1 | (opened >> r & 1))
        else:
            key = (location, held, sliceable, *[contents[r] << 1 | (opened >> r & 1) for r in here])
        found = self._admissible.get(key)
        if found is None:
            found = Actions(self._list_commands(location, held, opened, contents, lying))
            _remember(self._admissible, key, found)
        return found

    def _list_commands(
        self, location: int, held: int, opened: int, contents: list[int], lying: int
    ) -> list[str]:
        here = self.here[location]
        if held < 0 and len(here) == 1:  # by far the most frequent case: nothing to merge
            low, high = self._single(here[0], opened, contents[here[0]])
            return low + self._go_commands(location) + self._middle + high
        found: set[str] = set()
        for r in here:
            self._add_receptacle_commands(found, r, held, opened, contents[r])
        if held >= 0:
            self._add_held_commands(found, location, held, lying)
        # "examine" < "go to" < "help" < "inventory" < "look" < "move": the long list of "go to"
        # is sorted once per location, the rest is merged around it
        low = sorted(c for c in found if c < "go to")
        high = sorted(c for c in found if c > "go to")
        heat = [c for c in high if c < "help"]
        return low + self._go_commands(location) + heat + self._middle + high[len(heat) :]

    def _single(self, r: int, opened: int, contents: int) -> tuple[list[str], list[str]]:
        """Sorted commands for one receptacle and empty hands, before and after "go to"."""
        name, bit, command = self.receptacles[r], 1 << r, self._command
        low, high = [command(f"examine {name}", ("examine", r, -1))], []
        open_now = opened & bit
        if self.openable & bit:
            if open_now:
                low.insert(0, command(f"close {name}", ("close", r, -1)))
            else:
                high.append(command(f"open {name}", ("open", r, -1)))
        if open_now or not self.openable & bit:
            tail = f" from {name}"
            high += sorted(
                [
                    command(f"take {self.objects[o]}{tail}", ("take", o, r))
                    for o in bits(contents & self.flags["pickupable"])
                ]
            )
        lamps = contents & self.flags["toggleable"]
        if lamps:
            high += sorted({command(f"use {self.objects[o]}", ("use", o, -1)) for o in bits(lamps)})
        return low, high

    def _go_commands(self, location: int) -> list[str]:
        commands = self._going.get(location)
        if commands is None:
            commands = [text for text, place in self._go_to if place != location]
            self._going[location] = commands
        return commands

    def _command(self, text: str, action: Action) -> str:
        self.actions.setdefault(text, action)
        return text

    def _add_receptacle_commands(
        self, found: set[str], r: int, held: int, opened: int, contents: int
    ) -> None:
        name, bit = self.receptacles[r], 1 << r
        found.add(self._command(f"examine {name}", ("examine", r, -1)))
        if self.openable & bit:
            verb = "close" if opened & bit else "open"
            found.add(self._command(f"{verb} {name}", (verb, r, -1)))
        if not self.openable & bit or opened & bit:
            if held < 0:
                for o in bits(contents & self.flags["pickupable"]):
                    text = f"take {self.objects[o]} from {name}"
                    found.add(self._command(text, ("take", o, r)))
            elif self.accepts[r] >> held & 1:
                put = "put {} in/on {}" if self.legacy else "move {} to {}"
                found.add(self._command(put.format(self.objects[held], name), ("put", held, r)))
        for o in bits(contents & self.flags["toggleable"]):
            found.add(self._command(f"use {self.objects[o]}", ("use", o, -1)))

    def _add_held_commands(self, found: set[str], location: int, held: int, lying: int) -> None:
        name = self.objects[held]
        found.add(self._command(f"examine {name}", ("inspect", held, -1)))
        for verb, flag, appliances in (
            ("clean", "cleanable", self.sinks),
            ("heat", "heatable", self.microwaves),
            ("cool", "coolable", self.fridges),
        ):
            if self.flags[flag] >> held & 1:
                for r in self.here[location]:
                    if appliances >> r & 1:
                        text = f"{verb} {name} with {self.receptacles[r]}"
                        found.add(self._command(text, (verb, held, r)))
        if self.knives >> held & 1:
            for o in bits(lying & self.flags["sliceable"]):
                text = f"slice {self.objects[o]} with {name}"
                found.add(self._command(text, ("slice", o, held)))


def _remember(memo: dict[K, V], key: K, value: V) -> None:
    if len(memo) >= CACHE_LIMIT:
        memo.clear()
    memo[key] = value
