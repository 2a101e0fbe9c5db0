"""Task families: a function that draws a task from a world, with phrases to ask for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.envs.appworld.store import Overlay, World
from agent_envs.envs.appworld.tasks.goals import Goal


@dataclass(frozen=True, slots=True)
class Plan:
    """A drawn task.

    Args:
        slots: what the phrases name.
        goal: how it has to end.
        solution: code of the reference solution, one piece a step; the last one completes the task.
    """

    slots: Mapping[str, Any]
    goal: Goal
    solution: Sequence[str]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a family draws from.

    Attributes:
        rng: of this task only.
        db: the world, to be read.
        me: id of the person that the agent works for.
    """

    rng: random.Random
    world: World
    db: Overlay
    me: int

    def mine(self, table: str, **values: Any) -> list[Mapping[str, Any]]:
        """Rows of a table that belong to the person, with these values."""
        return self.db.where(table, owner_id=self.me, **values)

    def person(self, number: int) -> Mapping[str, Any]:
        row = self.db.get("people.people", number)
        assert row is not None  # ids of people come from the world
        return row

    def related(self, kind: str) -> list[Mapping[str, Any]]:
        """The contacts who are this to the person, as people; who is two things is left out."""
        found = self.mine("phone.contacts")
        numbers = {row["phone_number"] for row in found if row["relationships"] == [kind]}
        return [p for p in self.db.rows("people.people") if p["phone_number"] in numbers]

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of them; NoTask where there are none."""
        if not choices:
            raise NoTask
        return self.rng.choice(choices)


class NoTask(Exception):
    """This world has nothing to draw such a task from; another person or draw may."""


Drawing = Callable[[Draw], Plan]


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks of one kind.

    Args:
        apps: what a solution uses, besides ``supervisor`` and ``api_docs``.
        difficulty: 1 to 3.
        phrases: ways to ask; a scenario's variants take them in turn.
        challenge: kept for the split ``test_challenge``.
    """

    name: str
    draw: Drawing
    apps: tuple[str, ...]
    difficulty: int
    phrases: tuple[str, ...]
    challenge: bool = False


FAMILIES: dict[str, Family] = {}


def family(
    *apps: str, difficulty: int, phrases: Sequence[str], challenge: bool = False
) -> Callable[[Drawing], Drawing]:
    """Make a function of a :class:`Draw` a family, under the function's name."""

    def add(draw: Drawing) -> Drawing:
        name = draw.__name__
        FAMILIES[name] = Family(name, draw, apps, difficulty, tuple(phrases), challenge)
        return draw

    return add


def login(app: str) -> str:
    """Code that logs in to an app: ``token_APP`` holds the access token."""
    name = "phone_number" if app == "phone" else "email"
    return (
        "accounts = apis.supervisor.show_account_passwords()\n"
        "passwords = {account['account_name']: account['password'] for account in accounts}\n"
        f"username = apis.supervisor.show_profile()[{name!r}]\n"
        f"token_{app} = apis.{app}.login(username=username, password=passwords[{app!r}])['access_token']"
    )


def all_pages(name: str, call: str) -> str:
    """Code that puts all pages of a call into the list ``name``; ``call`` ends before its closing bracket."""
    return (
        f"{name} = []\n"
        "for page in range(1000):\n"
        f"    part = {call}, page_index=page, page_limit=20)\n"
        f"    {name} += part\n"
        "    if len(part) < 20:\n"
        "        break"
    )


def complete(answer: str | None = None) -> str:
    """Code that ends the task; ``answer`` is an expression."""
    return f"apis.supervisor.complete_task({'' if answer is None else f'answer={answer}'})"


def one_contact(name: str) -> str:
    """Code that finds the ``contact`` of a full name; needs ``token_phone``."""
    first, _, last = name.partition(" ")
    return (
        f"found = apis.phone.search_contacts(access_token=token_phone, query={name!r}, page_limit=20)\n"
        f"contact = [c for c in found if (c['first_name'], c['last_name']) == ({first!r}, {last!r})][0]"
    )


def read_note(title: str) -> str:
    """Code that reads the person's note of this title into ``note``; needs ``token_simple_note``."""
    mine = "access_token=token_simple_note"
    return (
        f"found = apis.simple_note.search_notes({mine}, query={title!r}, page_limit=20)\n"
        f"number = [n['note_id'] for n in found if n['title'] == {title!r}][0]\n"
        f"note = apis.simple_note.show_note({mine}, note_id=number)\nprint(note['content'])"
    )


def contacts_of(relation: str) -> str:
    """Code that lists the ``contacts`` who are this to the person; needs ``token_phone``."""
    return all_pages(
        "contacts",
        f"apis.phone.search_contacts(access_token=token_phone, relationship={relation!r}",
    )


def full_name(person: Mapping[str, Any]) -> str:
    return f"{person['first_name']} {person['last_name']}"


def amount_text(value: float) -> str:
    """An amount as people write it: ``12``, ``12.50``."""
    return f"{value:.2f}".removesuffix(".00")
