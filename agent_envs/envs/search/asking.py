"""Questions about the made-up world: one hop or two, each with one answer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_envs.envs.search import names
from agent_envs.envs.search.questions import Question
from agent_envs.envs.search.world import SEED, House, Person, Town, Work, World

ONE_HOP, TWO_HOP, TEST = 600, 600, 100  # questions of each kind, and how many of them are tested
DESCRIBED = 0.6  # share of people and towns in one-hop questions that are described, not named


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a passage says: ways to ask for it, and what an oracle looks up beside the name.

    ``{x}`` in a way of asking is whom or what it is about.
    """

    ways: tuple[str, ...]
    look_up: str
    answer: Callable[[Any], str]


PERSON = (
    Fact(
        (
            "In which town was {x} born?",
            "Where did {x} come into the world?",
            "What is the birthplace of {x}?",
        ),
        "born",
        lambda p: p.birthplace.name,
    ),
    Fact(
        ("Which prize did {x} win?", "What honour was given to {x}?", "Which award went to {x}?"),
        "received",
        lambda p: p.prize,
    ),
    Fact(
        (
            "Where did {x} study?",
            "Which school did {x} attend?",
            "At what institution was {x} educated?",
        ),
        "trained",
        lambda p: p.school,
    ),
    Fact(
        ("In which town did {x} spend old age?", "Where did {x} settle late in life?"),
        "lived later years",
        lambda p: p.home.name,
    ),
    Fact(
        ("In what year was {x} born?", "What is the year of birth of {x}?"),
        "born",
        lambda p: str(p.born),
    ),
)
TOWN = (
    Fact(
        ("Which river flows through {x}?", "What water does {x} lie on?"),
        "town on the",
        lambda t: t.river,
    ),
    Fact(
        ("To which province does {x} belong?", "What province is {x} part of?"),
        "province",
        lambda t: t.province,
    ),
    Fact(
        ("When was {x} given its charter?", "In what year did {x} become a town?"),
        "charter",
        lambda t: str(t.founded),
    ),
    Fact(
        ("Which trade made {x} wealthy?", "What goods is the wealth of {x} owed to?"),
        "grew rich",
        lambda t: t.product,
    ),
)
WORK = (
    Fact(("Who created {x}?", "Whose work is {x}?"), "by", lambda w: w.maker.name),
    Fact(
        ("When was {x} finished?", "What year saw the completion of {x}?"),
        "completed",
        lambda w: str(w.year),
    ),
    Fact(
        ("Where is {x} set?", "In which town does the action of {x} happen?"),
        "takes place",
        lambda w: w.setting.name,
    ),
)
HOUSE = (
    Fact(
        ("Who founded {x}?", "Who was behind the founding of {x}?"),
        "established",
        lambda h: h.founder.name,
    ),
    Fact(
        ("When was {x} founded?", "In what year did {x} open?"),
        "established",
        lambda h: str(h.year),
    ),
    Fact(
        ("In which town is {x} based?", "Where would you find the headquarters of {x}?"),
        "seat",
        lambda h: h.town.name,
    ),
)


@dataclass(frozen=True, slots=True)
class Link:
    """From one thing to another that its passage names: ways to speak of the other without its name."""

    ways: tuple[str, ...]
    look_up: str
    follow: Callable[[Any], Any]


LINKS: dict[str, tuple[Link, ...]] = {
    "work": (
        Link(
            ("the maker of {x}", "the artist behind {x}", "whoever created {x}"),
            "by",
            lambda w: w.maker,
        ),
        Link(
            ("the town where {x} is set", "the place in which {x} happens"),
            "takes place",
            lambda w: w.setting,
        ),
    ),
    "house": (
        Link(
            ("the founder of {x}", "the person who set up {x}"), "established", lambda h: h.founder
        ),
        Link(("the town where {x} is based", "the home town of {x}"), "seat", lambda h: h.town),
    ),
    "person": (
        Link(
            ("the town where {x} was born", "the birthplace of {x}"), "born", lambda p: p.birthplace
        ),
        Link(("the teacher of {x}", "the one who taught {x}"), "trained under", lambda p: p.mentor),
    ),
}
FACTS: dict[type, tuple[Fact, ...]] = {Person: PERSON, Town: TOWN, Work: WORK, House: HOUSE}


def ask(world: World) -> dict[str, list[Question]]:
    """Both kinds in both splits; no question is in two splits, each has one answer."""
    draw = random.Random(SEED + 1)
    splits: dict[str, list[Question]] = {"train": [], "test": []}
    for kind, make, count in (("one-hop", _one_hop, ONE_HOP), ("two-hop", _two_hop, TWO_HOP)):
        made: dict[str, Question] = {}
        for question in make(draw, world):
            if len(made) == count:
                break
            made.setdefault(question.text, question)
        for number, question in enumerate(made.values()):
            split = "test" if number < TEST else "train"
            splits[split].append(replace(question, id=f"{kind}/{number:04d}", data_source=kind))
    return splits


def _one_hop(draw: random.Random, world: World) -> Iterator[Question]:
    described = _descriptions(world)
    kinds: tuple[Sequence[Any], ...] = (
        world.people, world.people, world.works, world.towns, (*world.schools, *world.firms)
    )  # fmt: skip
    while True:
        thing = draw.choice(draw.choice(kinds))
        fact = draw.choice(FACTS[type(thing)])
        called = _called(draw, thing, described)
        if fact.answer(thing) in called:  # the description gives it away
            continue
        text = draw.choice(fact.ways).replace("{x}", called)
        yield Question(
            "", text, (fact.answer(thing),), "", (f"{thing.name} {fact.look_up}",), (thing.name,)
        )


def _two_hop(draw: random.Random, world: World) -> Iterator[Question]:
    houses = (*world.schools, *world.firms)
    kinds: dict[str, Sequence[Any]] = {"work": world.works, "house": houses, "person": world.people}
    while True:
        kind = draw.choice(("work", "house", "person"))
        thing, link = draw.choice(kinds[kind]), draw.choice(LINKS[kind])
        other = link.follow(thing)
        if other is None:  # nobody knows who taught them
            continue
        fact = draw.choice(FACTS[type(other)])
        called = draw.choice(link.ways).replace("{x}", _full(thing))
        text = draw.choice(fact.ways).replace("{x}", called)
        hops = (f"{thing.name} {link.look_up}", f"{other.name} {fact.look_up}")
        yield Question("", text, (fact.answer(other),), "", hops, (thing.name, other.name))


def _full(thing: Any) -> str:
    return f"the {thing.kind} {thing.name}" if isinstance(thing, Work) else str(thing.name)


def _called(draw: random.Random, thing: Any, described: dict[str, str]) -> str:
    """A name, or for some a description in other words that fits nobody else."""
    if thing.name in described and draw.random() < DESCRIBED:
        return described[thing.name]
    return _full(thing)


def _descriptions(world: World) -> dict[str, str]:
    """What fits one person or one town only."""
    people = {
        p.name: f"the {p.profession} with the {p.prize} who {names.HOBBIES[p.hobby]}"
        for p in world.people
    }
    towns = {
        t.name: f"the town in {t.province} known for its {t.product} and {t.sight}"
        for t in world.towns
    }
    described = {**people, **towns}
    counts = Counter(described.values())
    return {name: text for name, text in described.items() if counts[text] == 1}
