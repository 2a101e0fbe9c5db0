"""A scripted expert that plays by what the agent has seen.

Since only the agent changes the world, what it knows is a set of receptacles it has looked into
(their contents are what it saw plus its own changes) and a set of lamps it has noticed; that and its
own treatments are the whole :class:`Knowledge`, part of the environment's state. Receptacles are
told apart by name, the task is read from its sentence, and hidden contents are never consulted
(unless ``privileged``). Facts: ``ALFWORLD_ENGINE.md`` section 13.

Search order: expected number of wanted objects in a receptacle of that name, by the counts in
``tables.json``, divided by the steps it takes to look.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from agent_envs.envs.alfworld.engine import Engine
from agent_envs.envs.alfworld.game import Game, bits
from agent_envs.envs.alfworld.tables import SENTENCES, accepts, chances, tables

APPLIANCES = {
    "clean": ("sinkbasin", "bathtubbasin"),
    "heat": ("microwave",),
    "cool": ("fridge",),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """A task sentence taken apart; ``verb`` is "", clean, heat, cool or look."""

    verb: str
    thing: str
    target: str
    number: int = 1


def _patterns() -> list[tuple[re.Pattern[str], str, int]]:
    verbs = {"look_at_obj_in_light": "look"}
    found = []
    for task_type, sentences in SENTENCES.items():
        verb = verbs.get(task_type) or next((v for v in APPLIANCES if v in task_type), "")
        for sentence in sentences:
            pattern = re.escape(sentence).replace(r"\{\}", r"(\S+)")
            found.append((re.compile(pattern), verb, 2 if "two" in task_type else 1))
    return found


_SENTENCES = _patterns()


def read_task(sentence: str) -> Wish | None:
    """The wish behind one of ALFWorld's task sentences, None for any other text."""
    for pattern, verb, number in _SENTENCES:
        match = pattern.fullmatch(sentence)
        if match and not (verb == "" and match[1] in APPLIANCES):
            return Wish(verb, match[1], match[2], number)
    return None


@dataclass(slots=True)
class Knowledge:
    """What the agent has seen and done, as masks over receptacles (seen) and objects (the rest)."""

    seen: int = 0
    lamps: int = 0
    clean: int = 0
    heat: int = 0
    cool: int = 0

    def to_list(self) -> list[int]:
        return [self.seen, self.lamps, self.clean, self.heat, self.cool]

    @classmethod
    def from_list(cls, values: Any, game: Game) -> Knowledge:
        limits = [len(game.receptacles)] + [len(game.objects)] * 4
        for value, limit in zip(values, limits, strict=True):
            if type(value) is not int or not 0 <= value < 1 << limit:
                raise ValueError(f"{value!r} is no mask of {limit} bits")
        return cls(*values)

    def note(self, engine: Engine, command: str) -> None:
        """Take in what the last admissible ``command`` showed; call it right after the step."""
        game = engine.game
        verb, first, _ = game.actions[command]
        if verb in ("go", "open", "examine") and _accessible(engine, first):
            self.seen |= 1 << first
        elif verb in APPLIANCES:
            self._treat(verb, 1 << first)
        # "use" commands name lamps, "take" commands (empty hands only) name contents
        lamps, contents = game.flags["toggleable"], engine.contents
        for r in game.here[engine.location]:
            self.lamps |= contents[r] & lamps
            if engine.held < 0 and (not game.openable >> r & 1 or engine.opened >> r & 1):
                self.seen |= 1 << r

    def _treat(self, verb: str, bit: int) -> None:
        setattr(self, verb, getattr(self, verb) | bit)
        if verb == "heat":
            self.cool &= ~bit
        elif verb == "cool":
            self.heat &= ~bit


def _accessible(engine: Engine, r: int) -> bool:
    return not engine.game.openable >> r & 1 or bool(engine.opened >> r & 1)


def _word(name: str) -> str:
    return name.rpartition(" ")[0]


class Expert:
    """The next command for one engine and what is known of it. Makes no change to either."""

    def __init__(self, engine: Engine, knowledge: Knowledge, *, privileged: bool = False) -> None:
        self.engine, self.game, self.known = engine, engine.game, knowledge
        self.everything = (1 << len(self.game.receptacles)) - 1
        self.seen = self.everything if privileged else knowledge.seen
        lamps = self.game.flags["toggleable"]
        in_receptacle = 0
        for contents in engine.contents:
            in_receptacle |= contents
        self.lamps = lamps & in_receptacle if privileged else knowledge.lamps

    def command(self) -> str:
        """An admissible command; ``look`` where it does not know what to do."""
        wish = read_task(self.game.task)
        if wish is None:
            return "look"
        things = self._objects_named(wish.thing)
        held = self.engine.held
        if held >= 0 and not things >> held & 1:
            return self._drop(held)
        if wish.verb == "look":
            return self._light(wish, things)
        if held >= 0:
            return self._deliver(wish, held)
        return self._fetch(wish, things)

    # -- subgoals ----------------------------------------------------------------------------

    def _light(self, wish: Wish, things: int) -> str:
        if self.engine.held < 0:
            return self._take_known(things) or self._explore(wish.thing)
        lamps = self.lamps & self._objects_named(wish.target)
        for r in self.game.here[self.engine.location]:
            for lamp in bits(self.engine.contents[r] & lamps):
                return f"use {self.game.objects[lamp]}"
        for r, contents in enumerate(self.engine.contents):
            if contents & lamps:
                return self._go(r)
        return self._explore(wish.target)

    def _deliver(self, wish: Wish, held: int) -> str:
        if wish.verb and not getattr(self.known, wish.verb) >> held & 1:
            return self._treat(wish.verb)
        targets = self._receptacles_named(wish.target)
        if wish.number == 2:
            targets.sort(key=lambda r: -self._stored(r, wish.thing))
        return self._put(held, targets)

    def _fetch(self, wish: Wish, things: int) -> str:
        if wish.number == 1:
            return self._take_known(things, self._done(wish)) or self._explore(wish.thing)
        targets = self._receptacles_named(wish.target)
        fullest = max(targets, key=lambda r: self._stored(r, wish.thing), default=-1)
        keep = self.engine.contents[fullest] if fullest >= 0 and self.seen >> fullest & 1 else 0
        return self._take_known(things & ~keep) or self._explore(wish.thing)

    def _done(self, wish: Wish) -> int:
        """Objects that need not be fetched any more (none in a game that is still open)."""
        return 0 if wish.verb else sum(
            self.engine.contents[r] for r in self._receptacles_named(wish.target) if self.seen >> r & 1
        )  # fmt: skip

    def _stored(self, r: int, thing: str) -> int:
        if not self.seen >> r & 1:
            return 0
        return (self.engine.contents[r] & self._objects_named(thing)).bit_count()

    # -- single moves ------------------------------------------------------------------------

    def _take_known(self, things: int, without: int = 0) -> str | None:
        """Towards an object of ``things`` that has been seen, here before elsewhere."""
        wanted = things & ~without & self.game.flags["pickupable"]
        holders = [
            r for r, contents in enumerate(self.engine.contents)
            if self.seen >> r & 1 and contents & wanted
        ]  # fmt: skip
        if not holders:
            return None
        r = min(holders, key=lambda r: (not self._is_here(r), r))
        reach = self._reach(r)
        if reach:
            return reach
        thing = next(bits(self.engine.contents[r] & wanted))
        return f"take {self.game.objects[thing]} from {self.game.receptacles[r]}"

    def _treat(self, verb: str) -> str:
        admissible = self.engine.admissible
        name = self.game.objects[self.engine.held]
        options = [r for word in APPLIANCES[verb] for r in self._receptacles_named(word)]
        for r in options:
            command = f"{verb} {name} with {self.game.receptacles[r]}"
            if command in admissible:
                return command
        # an appliance here that offers nothing is not the right one: try the next
        elsewhere = [r for r in options if not self._is_here(r)]
        return self._go(elsewhere[0]) if elsewhere else "look"

    def _put(self, held: int, targets: list[int]) -> str:
        admissible = self.engine.admissible
        for r in targets:
            if not self._is_here(r):
                return self._go(r)
            if not _accessible(self.engine, r):
                return f"open {self.game.receptacles[r]}"
            command = self._put_command(held, r)
            if command in admissible:
                return command
        return "look"

    def _put_command(self, held: int, r: int) -> str:
        pattern = "put {} in/on {}" if self.game.legacy else "move {} to {}"
        return pattern.format(self.game.objects[held], self.game.receptacles[r])

    def _drop(self, held: int) -> str:
        """Get rid of an object that is not wanted, here if possible."""
        word, admissible = _word(self.game.objects[held]), self.engine.admissible
        for r in self.game.here[self.engine.location]:
            command = self._put_command(held, r)
            if command in admissible:
                return command
        takers = [
            r for r, name in enumerate(self.game.receptacles)
            if word in accepts().get(_word(name), ()) and self.game.location_of[r] >= 0
        ]  # fmt: skip
        if not takers:
            return "look"
        openness = tables()["openable"]
        easy = [
            r
            for r in takers
            if not any(k.lower() == _word(self.game.receptacles[r]) for k in openness)
        ]
        return self._put(held, (easy or takers)[:1])

    def _explore(self, thing: str) -> str:
        """Look into the most promising receptacle that has not been seen."""
        unseen = [
            r for r in range(len(self.game.receptacles))
            if not self.seen >> r & 1 and self.game.location_of[r] >= 0
        ]  # fmt: skip
        if not unseen:
            return "look"
        best = max(unseen, key=lambda r: (self._promise(r, thing), -r))
        return self._reach(best) or f"examine {self.game.receptacles[best]}"

    def _promise(self, r: int, thing: str) -> float:
        word = _word(self.game.receptacles[r])
        expected = chances().get((word, thing), 0.0) + 1e-4
        if self._is_here(r):
            return expected  # one step: open or examine
        share: float = next(
            (s for kind, s in tables()["openable"].items() if kind.lower() == word), 0.0
        )
        return expected / (1 + share)

    def _reach(self, r: int) -> str | None:
        """Go there, open it; None when its contents are at hand."""
        if not self._is_here(r):
            return self._go(r)
        if not _accessible(self.engine, r):
            return f"open {self.game.receptacles[r]}"
        return None

    def _go(self, r: int) -> str:
        return f"go to {self.game.receptacles[r]}"

    # -- words -------------------------------------------------------------------------------

    def _is_here(self, r: int) -> bool:
        return self.game.location_of[r] == self.engine.location

    def _objects_named(self, word: str) -> int:
        return sum(1 << o for o, name in enumerate(self.game.objects) if _word(name) == word)

    def _receptacles_named(self, word: str) -> list[int]:
        return [
            r for r, name in enumerate(self.game.receptacles)
            if _word(name) == word and self.game.location_of[r] >= 0
        ]  # fmt: skip
