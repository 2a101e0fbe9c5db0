"""What a game file says: initial facts, goal, task sentence, walkthrough.

A :class:`Problem` is plain data, the common currency of the three sources of games: official
``game.tw-pddl`` files (:func:`read_game_file`), the imported pack and the generator.
Spec: ``ALFWORLD_ENGINE.md`` sections 1, 8, 12 (facts only; the format is ALFWorld's).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Facts = Mapping[str, Sequence[tuple[str, str]]]
"""Predicate (lower case) -> argument pairs; the second is "" for unary predicates."""

STATIC_GOAL_PREDICATES = ("cleanable", "heatable", "coolable", "sliceable", "pickupable")
DYNAMIC_GOAL_PREDICATES = ("isclean", "ishot", "iscool", "issliced")

_PREDICATE = re.compile(r"\(([a-z_]+)[ (]")
_TASK = re.compile(r"Your task is to: (.*?)\"", re.DOTALL)
_GOAL_WORDS = frozenset(
    (
        "and exists not objecttype receptacletype inreceptacle receptacleatlocation "
        "atlocation holds toggleable istoggled"
    ).split()
)


class UnsupportedGame(ValueError):
    """The file is a game, but not one that this engine plays (the message says why)."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the goal forms of the six task types.

    ``kind`` is ``place`` (an object of ``object_type`` with all ``properties`` lies in a receptacle
    of ``target_type``), ``two`` (two of them in the same receptacle) or ``look`` (an object of the
    type is in hand where a switched-on lamp of ``target_type`` stands).
    """

    kind: str
    object_type: str
    target_type: str
    properties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One game before it is compiled: everything that play depends on."""

    task: str
    facts: Facts
    goal: Goal
    walkthrough: tuple[str, ...] = ()
    legacy: bool = False
    annotations: tuple[str, ...] = field(default=())


def read_game_file(path: str | Path) -> Problem:
    """Read an official ``game.tw-pddl`` file.

    Raises:
        FileNotFoundError: no such file.
        UnsupportedGame: not a game file, unsolvable, or with a goal this engine does not know.
    """
    path = Path(path)
    try:
        return _read_problem(path)
    except UnsupportedGame:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UnsupportedGame(f"{path} is no ALFWorld game: {error!r:.200}") from error


def _read_problem(path: Path) -> Problem:
    try:
        content = json.loads(path.read_bytes())
        grammar, problem = content["grammar"], content["pddl_problem"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnsupportedGame(
            f"{path} is not an ALFWorld game file: expected JSON with 'grammar' and "
            f"'pddl_problem' ({type(error).__name__}: {error})"
        ) from error
    if content.get("solvable") is False:
        raise UnsupportedGame(f"{path} is marked unsolvable")
    match = _TASK.search(grammar) if isinstance(grammar, str) else None
    if match is None:
        raise UnsupportedGame(f"{path}: the grammar holds no sentence 'Your task is to: ...'")
    try:
        facts, goal = parse_problem(problem)
    except (ValueError, AttributeError, TypeError) as error:
        raise UnsupportedGame(f"{path}: {error}") from error
    return Problem(
        task=json.loads(f'"{match[1]}"'),
        facts=facts,
        goal=goal,
        walkthrough=tuple(content.get("walkthrough") or ()),
        legacy="action help" not in grammar,
    )


def parse_problem(text: str) -> tuple[Facts, Goal]:
    """Split a PDDL problem into its initial facts and its goal (Fast Downward folds case)."""
    text = text.lower()
    start, end = text.find("(:init"), text.find("(:goal")
    if start < 0 or end < start:
        raise UnsupportedGame("the problem has no (:init ...) followed by (:goal ...)")
    facts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    # splitting beats a regular expression by 3x here, and this is most of the loading time
    for part in text[start + len("(:init") : end].replace(")", " ").split("(")[1:]:
        words = part.split()
        if len(words) == 3:
            facts[words[0]].append((words[1], words[2]))
        elif len(words) == 2:
            facts[words[0]].append((words[1], ""))
    if not facts["atlocation"]:
        raise UnsupportedGame("the problem does not say where the agent starts")
    return facts, parse_goal(text[end:])


def parse_goal(text: str) -> Goal:
    """Recognise the goal; types come from its ``objectType``/``receptacleType`` constraints."""
    words = set(_PREDICATE.findall(text))
    properties = tuple(
        word for word in STATIC_GOAL_PREDICATES + DYNAMIC_GOAL_PREDICATES if word in words
    )
    unknown = words - _GOAL_WORDS - set(properties)
    object_types = re.findall(r"\(objecttype \?(\w+) (\w+)\)", text)
    target_types = re.findall(r"\(receptacletype \?\w+ (\w+)\)", text)
    if unknown or not object_types:
        raise UnsupportedGame(f"unsupported goal (unknown parts: {sorted(unknown) or 'all'})")
    if "istoggled" in words:
        if len(object_types) != 2 or "holds" not in words:
            raise UnsupportedGame("unsupported goal with a lamp")
        return Goal("look", object_types[1][1], object_types[0][1])
    if not target_types or len({kind for _, kind in object_types}) != 1:
        raise UnsupportedGame("unsupported goal: one object type and one receptacle type expected")
    kind = "two" if len(object_types) == 2 else "place"
    return Goal(kind, object_types[0][1], target_types[0], properties)
