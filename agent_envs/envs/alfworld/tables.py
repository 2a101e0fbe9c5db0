"""Counts over the 4,027 official games: what rooms hold, what lies where, what is asked for.

Facts from ``ALFWORLD_GENERATOR.md`` sections 3-8, stored in ``tables.json``. Keys there are
ALFWorld's class names (``CounterTop``); names in play are the same in lower case.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from importlib import resources
from typing import Any

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)

# the two sentence templates of each task type; {} are object and receptacle (or lamp)
SENTENCES: dict[str, tuple[str, str]] = {
    "pick_and_place_simple": ("put a {} in {}.", "put some {} on {}."),
    "look_at_obj_in_light": ("look at {} under the {}.", "examine the {} with the {}."),
    "pick_clean_then_place_in_recep": ("put a clean {} in {}.", "clean some {} and put it in {}."),
    "pick_heat_then_place_in_recep": ("put a hot {} in {}.", "heat some {} and put it in {}."),
    "pick_cool_then_place_in_recep": ("put a cool {} in {}.", "cool some {} and put it in {}."),
    "pick_two_obj_and_place": ("put two {} in {}.", "find two {} and put them in {}."),
}

TREATMENTS: dict[str, tuple[str, str]] = {  # task type -> (verb, receptacle type that does it)
    "pick_clean_then_place_in_recep": ("clean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heat", "Microwave"),
    "pick_cool_then_place_in_recep": ("cool", "Fridge"),
}


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """The counts; treat as read-only."""
    text = resources.files(__package__).joinpath("tables.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@lru_cache(maxsize=1)
def chances() -> dict[tuple[str, str], float]:
    """(receptacle word, object word) -> expected number of such objects in one such receptacle."""
    instances = tables()["instances"]
    return {
        (receptacle.lower(), thing.lower()): count / instances[receptacle]
        for receptacle, things in tables()["contents"].items()
        for thing, count in things.items()
    }


@lru_cache(maxsize=1)
def placed_shares() -> dict[str, float]:
    """Object class -> share of its instances that lie in a receptacle; the rest is scenery."""
    there: Counter[str] = Counter()
    for room in tables()["rooms"].values():
        for thing, (presence, _, mean, _) in room["objects"].items():
            there[thing] += room["games"] * presence * mean
    placed: Counter[str] = Counter()
    for things in tables()["contents"].values():
        placed.update(things)
    return {thing: min(1.0, placed[thing] / number) for thing, number in there.items()}


@lru_cache(maxsize=1)
def accepts() -> dict[str, frozenset[str]]:
    """Receptacle word -> object words that can be put there."""
    return {
        receptacle.lower(): frozenset(thing.lower() for thing in things)
        for receptacle, things in tables()["accepts"].items()
    }


@lru_cache(maxsize=1)
def standard_pairs() -> frozenset[tuple[str, str]]:
    """The ``canContain`` relation between PDDL type names (``cabinettype``, ``platetype``)."""
    return frozenset(
        (receptacle + "type", thing + "type")
        for receptacle, things in accepts().items()
        for thing in things
    )


@lru_cache(maxsize=1)
def properties() -> dict[str, tuple[str, ...]]:
    """PDDL object type -> predicates that hold for all objects of the type."""
    return {
        thing.lower() + "type": tuple(name.lower() for name in names)
        for thing, names in tables()["properties"].items()
    }
