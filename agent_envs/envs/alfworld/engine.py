"""The ALFWorld text engine: exact play of one compiled game.

Byte-equal to TextWorld 1.7.0 + alfworld 0.4.2 in observation, admissible commands (content and
order), score and won. Spec: ``ALFWORLD_ENGINE.md`` sections 3-8 and 11-12; the observation
sentences are ALFWorld's interface strings (MIT, credited in NOTICE).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_envs.core.actions import Actions
from agent_envs.envs.alfworld.game import Game, bits, enumerate_items
from agent_envs.envs.alfworld.problem import read_game_file

NOTHING_HAPPENS = "Nothing happens."

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

# first match wins; the conditions are conjunctions of object flags
_CONDITIONS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("isclean", "ishot", "issliced"), "This is a hot and clean sliced {}."),
    (("isclean", "iscool", "issliced"), "This is a cool and clean sliced {}."),
    (("isclean", "issliced"), "This is a clean sliced {}."),
    (("ishot", "issliced"), "This is a hot sliced {}."),
    (("iscool", "issliced"), "This is a cool sliced {}."),
    (("isclean", "ishot"), "This is a hot and clean {}."),
    (("isclean", "iscool"), "This is a cool and clean {}."),
    (("ishot",), "This is a hot {}."),
    (("isclean",), "This is a clean {}."),
    (("iscool",), "This is a cold {}."),
    (("toggleable", "istoggled"), "This {} is on."),
    (("sliceable", "issliced"), "This is a sliced {}."),
)
_DYNAMIC = ("isclean", "ishot", "iscool", "issliced", "istoggled")

Result = tuple[str, list[str], int, bool]
"""(observation, admissible commands, score, won)."""


class Engine:
    """Play one game; unlike the environment it goes on after a win.

    Args:
        game: a compiled :class:`Game`, or the path of a ``game.tw-pddl`` file.

    Raises:
        UnsupportedGame: the file is not a game that this engine plays.
    """

    __slots__ = (
        "_admissible",
        "contents",
        "flags",
        "game",
        "held",
        "location",
        "lying",
        "opened",
        "removed",
        "won",
    )  # fmt: skip

    def __init__(self, game: Game | str | Path) -> None:
        self.game = game if isinstance(game, Game) else Game(read_game_file(game), str(game))
        self.restart()

    def restart(self) -> None:
        """Back to the initial state, without rendering anything."""
        game = self.game
        self.location = game.start
        self.held = -1
        self.opened = game.opened
        self.flags: dict[str, int] = {name: game.flags[name] for name in _DYNAMIC}
        self.contents: list[int] = game.contents.copy()
        self.lying: list[int] = game.lying.copy()
        # receptacle -> objects with an explicit negative fact (they were taken out of it)
        self.removed: dict[int, int] = {}
        self._admissible: Actions | None = None
        self.won = self._goal_holds()

    def reset(self) -> Result:
        self.restart()
        return self._result(self.game.intro)

    def step(self, command: str) -> Result:
        """Execute ``command`` if it is admissible, else answer ``Nothing happens.``"""
        return self._result(self.act(command.strip()) or NOTHING_HAPPENS)

    def act(self, command: str) -> str | None:
        """The feedback of a stripped command, None where it is not admissible."""
        if command not in self.admissible:
            return None
        verb, first, second = self.game.actions[command]
        feedback: str = getattr(self, "_" + verb)(first, second)
        return feedback

    @property
    def admissible(self) -> Actions:
        """The admissible commands now, sorted."""
        found = self._admissible
        if found is None:
            place = self.location
            found = self._admissible = self.game.admissible(
                place, self.held, self.opened, self.contents, self.lying[place]
            )
        return found

    @property
    def score(self) -> int:
        return int(self.won)

    def _result(self, observation: str) -> Result:
        return observation, self.admissible.copy(), int(self.won), self.won

    def _changed(self, goal: bool = True) -> None:
        """Forget what was derived; ``goal``: the change can decide the goal."""
        self._admissible = None
        if goal:
            self.won = self._goal_holds()

    # -- actions: (first operand, second operand) -> feedback ------------------------------------

    def _look(self, _: int, __: int) -> str:
        game, here = self.game, self.game.here[self.location]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        facing = enumerate_items([game.receptacles[r] for r in here])
        floor = [
            "a " + game.objects[o]
            for o in bits(self.lying[self.location])
            for r in here
            if self.removed.get(r, 0) >> o & 1
        ]
        return f"You are facing the {facing}. Next to it, you see {enumerate_items(floor)}."

    def _inventory(self, _: int, __: int) -> str:
        if self.held < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self.game.objects[self.held]}."

    def _help(self, _: int, __: int) -> str:
        return HELP

    def _examine(self, r: int, _: int) -> str:
        return self.game.describe(r, self.opened, self.contents[r])

    def _inspect(self, o: int, _: int) -> str:
        name = self.game.objects[o]
        if self.game.flags["isreceptacleobject"] >> o & 1:
            inside = self.game.list_objects(self.game.inside.get(o, 0))
            return f"This is a normal {name}. In it, you see {inside}."
        for needed, text in _CONDITIONS:
            if all((self.flags.get(n, self.game.flags[n])) >> o & 1 for n in needed):
                return text.format(name)
        return f"There's nothing special about {name}."

    def _go(self, r: int, _: int) -> str:
        self.location = self.game.location_of[r]
        self._changed(goal=self.game.goal_lamps > 0)
        where = self.game.locations[self.location] if self.game.legacy else self.game.receptacles[r]
        return f"You arrive at {where}. {self._examine(r, -1)}"

    def _open(self, r: int, _: int) -> str:
        self.opened |= 1 << r
        self._changed(goal=False)
        return f"You open the {self.game.receptacles[r]}. {self._examine(r, -1)}"

    def _close(self, r: int, _: int) -> str:
        self.opened &= ~(1 << r)
        self._changed(goal=False)
        return f"You close the {self.game.receptacles[r]}."

    def _take(self, o: int, r: int) -> str:
        bit = 1 << o
        self.contents[r] &= ~bit
        self.removed[r] = self.removed.get(r, 0) | bit
        self.lying[self.location] &= ~bit
        self.held = o
        self._changed()
        return f"You pick up the {self.game.objects[o]} from the {self.game.receptacles[r]}."

    def _put(self, o: int, r: int) -> str:
        bit = 1 << o
        self.contents[r] |= bit
        left = self.removed.pop(r, 0) & ~bit
        if left:
            self.removed[r] = left
        self.lying[self.location] |= bit
        self.held = -1
        self._changed()
        put = "You put the {} in/on the {}." if self.game.legacy else "You move the {} to the {}."
        return put.format(self.game.objects[o], self.game.receptacles[r])

    def _treat(self, verb: str, o: int, r: int, adds: str, removes: str = "") -> str:
        self.flags[adds] |= 1 << o
        if removes:
            self.flags[removes] &= ~(1 << o)
        self._changed()
        return f"You {verb} the {self.game.objects[o]} using the {self.game.receptacles[r]}."

    def _clean(self, o: int, r: int) -> str:
        return self._treat("clean", o, r, "isclean")

    def _heat(self, o: int, r: int) -> str:
        return self._treat("heat", o, r, "ishot", "iscool")

    def _cool(self, o: int, r: int) -> str:
        return self._treat("cool", o, r, "iscool", "ishot")

    def _use(self, o: int, _: int) -> str:
        self.flags["istoggled"] |= 1 << o
        self._changed()
        return f"You turn on the {self.game.objects[o]}."

    def _slice(self, o: int, knife: int) -> str:
        self.flags["issliced"] |= 1 << o
        self._changed()
        return f"You sliced the {self.game.objects[o]} with the {self.game.objects[knife]}."

    # -- goal ------------------------------------------------------------------------------------

    def _goal_holds(self) -> bool:
        game = self.game
        if game.goal_lamps:
            if self.held < 0 or not game.goal_objects >> self.held & 1:
                return False
            lit = game.goal_lamps & self.flags["istoggled"]
            return any(self.contents[r] & lit for r in game.here[self.location])
        wanted = game.goal_objects
        for name in game.goal_dynamic:
            wanted &= self.flags[name]
        if game.goal.kind == "two":
            return any(
                (found := self.contents[r] & wanted) & (found - 1) for r in game.goal_receptacles
            )
        return any(self.contents[r] & wanted for r in game.goal_receptacles)

    # -- state as the difference from the start --------------------------------------------------

    def difference(self) -> dict[str, Any]:
        """JSON-able difference from the initial state; :meth:`restore` is its inverse."""
        game = self.game
        return {
            "at": self.location,
            "held": self.held,
            "open": self.opened ^ game.opened,
            "flags": [self.flags[name] ^ game.flags[name] for name in _DYNAMIC],
            "in": _changes(self.contents, game.contents),
            "on": _changes(self.lying, game.lying),
            "out": sorted(self.removed.items()),
        }

    def restore(self, difference: Mapping[str, Any]) -> None:
        """Set the state; raises ValueError, KeyError or TypeError on nonsense, then unchanged."""
        game, objects = self.game, len(self.game.objects)
        location = _number(difference["at"], 0, len(game.locations))
        held = _number(difference["held"], -1, objects)
        opened = _number(difference["open"], 0, 1 << len(game.receptacles))
        masks = [_number(mask, 0, 1 << objects) for mask in difference["flags"]]
        inside = [_pair(p, len(game.receptacles), objects) for p in difference["in"]]
        lying = [_pair(p, len(game.locations), objects) for p in difference["on"]]
        removed = [_pair(p, len(game.receptacles), objects) for p in difference["out"]]
        if len(masks) != len(_DYNAMIC) or opened & ~game.openable:
            raise ValueError("flags do not fit the game")
        self.restart()
        self.location, self.held, self.opened = location, held, opened ^ game.opened
        for name, mask in zip(_DYNAMIC, masks, strict=True):
            self.flags[name] ^= mask
        for index, mask in inside:
            self.contents[index] = mask
        for index, mask in lying:
            self.lying[index] = mask
        self.removed = dict(removed)
        self._changed()


def _changes(now: list[int], start: list[int]) -> list[tuple[int, int]]:
    return [(i, mask) for i, (mask, old) in enumerate(zip(now, start, strict=True)) if mask != old]


def _number(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value < high:
        raise ValueError(f"{value!r} is not an integer in [{low}, {high})")
    return value


def _pair(value: Any, indices: int, objects: int) -> tuple[int, int]:
    index, mask = value
    return _number(index, 0, indices), _number(mask, 0, 1 << objects)
