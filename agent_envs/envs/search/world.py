"""A made-up world: people, places, works and firms that refer to each other, a passage for each.

Made once per process from a fixed seed, so every user searches the same passages. Names repeat on purpose:
many people share a surname, titles share words, schools and firms are named after people who are not meant.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from agent_envs.envs.search import names
from agent_envs.envs.search.questions import QuestionSet
from agent_envs.retrieval.documents import Document

SEED = 20261202
PEOPLE, WORKS, TOWNS, SCHOOLS, FIRMS = 900, 560, 340, 260, 440


@dataclass(frozen=True, slots=True)
class Town:
    name: str
    river: str
    province: str
    founded: int
    product: str
    sight: str


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    she: bool
    profession: str
    born: int
    died: int
    birthplace: Town
    home: Town
    school: str
    hobby: str
    prize: str
    mentor: Person | None

    @property
    def surname(self) -> str:
        return self.name.split()[-1]


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    kind: str
    maker: Person
    year: int
    setting: Town
    dedicated: str


@dataclass(frozen=True, slots=True)
class House:
    """A school or a firm."""

    name: str
    founder: Person
    year: int
    town: Town
    product: str  # "" for a school


@dataclass(frozen=True, slots=True)
class World:
    towns: tuple[Town, ...]
    people: tuple[Person, ...]
    works: tuple[Work, ...]
    schools: tuple[House, ...]
    firms: tuple[House, ...]


@lru_cache(maxsize=1)
def world() -> World:
    """The world; a tenth of a second the first time."""
    draw = random.Random(SEED)
    towns = tuple(_towns(draw))
    houses = _distinct(draw, names.LAST, names.SCHOOLS, SCHOOLS // 2)
    houses += _distinct(draw, [town.name for town in towns], names.SCHOOLS, SCHOOLS - SCHOOLS // 2)
    people = tuple(_people(draw, towns, houses))
    makers = [person for person in people if person.profession in names.PROFESSIONS]
    return World(
        towns,
        people,
        tuple(_works(draw, makers, people, towns)),
        tuple(_house(draw, name, people, towns, "") for name in houses),
        tuple(_firms(draw, people, towns)),
    )


def _distinct(
    draw: random.Random, heads: Sequence[str], tails: Sequence[str], count: int, gap: str = " "
) -> list[str]:
    return draw.sample([head + gap + tail for head, tail in product(heads, tails)], count)


def _towns(draw: random.Random) -> Iterator[Town]:
    for name in _distinct(draw, names.TOWN_HEADS, names.TOWN_TAILS, TOWNS, ""):
        yield Town(
            name, draw.choice(names.RIVERS), draw.choice(names.PROVINCES), draw.randrange(980, 1780),
            draw.choice(names.PRODUCTS), draw.choice(names.SIGHTS),
        )  # fmt: skip


def _people(draw: random.Random, towns: Sequence[Town], schools: Sequence[str]) -> Iterator[Person]:
    professions = (*names.PROFESSIONS, *names.SCHOLARS)
    made: list[Person] = []
    for number, name in enumerate(_distinct(draw, names.FIRST, names.LAST, PEOPLE)):
        born = draw.randrange(1780, 1930)
        elders = [p for p in draw.sample(made, min(12, len(made))) if 15 <= born - p.born <= 60]
        person = Person(
            name, draw.random() < 0.5, professions[number % len(professions)], born,
            born + draw.randrange(48, 92), draw.choice(towns), draw.choice(towns),
            draw.choice(schools), draw.choice(tuple(names.HOBBIES)), draw.choice(names.PRIZES),
            elders[0] if elders else None,
        )  # fmt: skip
        made.append(person)
        yield person


def _works(
    draw: random.Random, makers: Sequence[Person], people: Sequence[Person], towns: Sequence[Town]
) -> Iterator[Work]:
    for title in _distinct(draw, names.TITLE_HEADS, names.TITLE_TAILS, WORKS):
        maker = draw.choice(makers)
        yield Work(
            f"The {title}", names.PROFESSIONS[maker.profession], maker,
            maker.born + draw.randrange(22, 47), draw.choice(towns), draw.choice(people).name,
        )  # fmt: skip


def _house(
    draw: random.Random, name: str, people: Sequence[Person], towns: Sequence[Town], made: str
) -> House:
    founder = draw.choice(people)
    return House(name, founder, founder.born + draw.randrange(25, 47), draw.choice(towns), made)


def _firms(draw: random.Random, people: Sequence[Person], towns: Sequence[Town]) -> Iterator[House]:
    heads = [f"{name} {made.title()}" for name, made in product(names.LAST, names.PRODUCTS)]
    for name in _distinct(draw, heads, names.FIRMS, FIRMS):
        made = name.split()[1].lower()
        yield _house(draw, name, people, towns, made)


# -- passages ---------------------------------------------------------------------------------------


def _town_text(town: Town) -> str:
    return (
        f"{town.name} is a town on the {town.river} in the province of {town.province}. It received its "
        f"charter in {town.founded} and grew rich on {town.product}. Visitors come to {town.name} for "
        f"{town.sight}."
    )


def _person_text(person: Person) -> str:
    they, their = ("She", "her") if person.she else ("He", "his")
    first, last = person.name.split()
    learned = f" under {person.mentor.name}" if person.mentor else ""
    return (
        f"{first} {last} ({person.born}-{person.died}) was a {person.profession}, born in "
        f"{person.birthplace.name}. {they} trained at {person.school}{learned} and received the "
        f"{person.prize}. {last} lived in {person.home.name} in {their} later years and {person.hobby}."
    )


def _work_text(work: Work) -> str:
    return (
        f"{work.name} is a {work.kind} by {work.maker.name}, completed in {work.year}. It takes place in "
        f"{work.setting.name} and is dedicated to {work.dedicated}."
    )


def _house_text(house: House) -> str:
    purpose = f"makes {house.product}" if house.product else "teaches some four hundred students"
    return (
        f"{house.name} was established in {house.year} by {house.founder.name}. It {purpose} and has its "
        f"seat in {house.town.name}."
    )


_WRITERS: dict[type, Callable[..., str]] = {
    Town: _town_text, Person: _person_text, Work: _work_text, House: _house_text
}  # fmt: skip


@lru_cache(maxsize=1)
def documents() -> tuple[Document, ...]:
    """A passage for each thing of the world; its id is its title."""
    made = world()
    things: tuple[Any, ...] = (
        *made.towns, *made.people, *made.works, *made.schools, *made.firms
    )  # fmt: skip
    return tuple(Document(t.name, f'"{t.name}"\n{_WRITERS[type(t)](t)}') for t in things)


@lru_cache(maxsize=1)
def questions() -> QuestionSet:
    """The embedded questions in their fixed splits."""
    from agent_envs.envs.search.asking import ask

    return QuestionSet(ask(world()))
