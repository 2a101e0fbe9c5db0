"""Builds a world from its seed: people first, then each app's tables, in a fixed order."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from agent_envs.core.seeding import check_seed, keyed_seed
from agent_envs.envs.appworld.api import Apps, Brand, branded, secret
from agent_envs.envs.appworld.apps import APPS
from agent_envs.envs.appworld.people import Outing, seed_people
from agent_envs.envs.appworld.store import Row, World


def make_apps(brand: Brand = "real") -> Apps:
    """The registry of all apps under a brand's names."""
    return Apps(APPS, brand)


def build_world(seed: int, brand: Brand = "real") -> World:
    """The world of a seed: same seed and brand, same bytes in any process."""
    builder = Builder(check_seed(seed), brand)
    seed_people(builder)
    for app in APPS:
        app.seed(builder)
    now = builder.now.isoformat(timespec="seconds")
    return World(builder.seed, now, builder.tables, brand)


class Builder:
    """What the seeding functions work with. Every draw comes from a stream of its own purpose."""

    def __init__(self, seed: int, brand: Brand) -> None:
        self.seed = seed
        self.tables: dict[str, dict[int, Row]] = {}
        self.outings: list[Outing] = []
        self._brand = brand
        self._related: dict[tuple[int, str], list[int]] = {}
        rng = self.rng("people", "now")
        start = datetime(2024, 1, 2, 8)
        self.now = start + timedelta(days=rng.randrange(700), minutes=5 * rng.randrange(120))

    def rng(self, app: str, purpose: str) -> random.Random:
        """A generator that depends on the seed, the app and the purpose only."""
        key = int.from_bytes(f"{app}/{purpose}".encode(), "big")
        return random.Random(keyed_seed(self.seed, key))

    def brand(self, app: str) -> str:
        """The app's name under the world's brand (any text: its trademarks are replaced)."""
        return branded(app, self._brand)

    def table(self, name: str) -> dict[int, Row]:
        """The rows so far; makes the table where it is not there yet."""
        return self.tables.setdefault(name, {})

    def add(self, table: str, **values: Any) -> Row:
        rows = self.table(table)
        number = len(rows) + 1
        rows[number] = {"id": number, **values}
        return rows[number]

    def ago(self, rng: random.Random, low: int, high: int) -> str:
        """A date-time between ``low`` and ``high`` days before now."""
        minutes = rng.randint(low * 1440, high * 1440 + 1)
        when = self.now - timedelta(minutes=max(minutes, 5), seconds=rng.randrange(60))
        return when.isoformat(timespec="seconds")

    def after(self, when: str, minutes: int) -> str:
        """``minutes`` after a date-time, but not beyond a minute before now."""
        later = datetime.fromisoformat(when) + timedelta(minutes=minutes)
        return min(later, self.now - timedelta(minutes=1)).isoformat(timespec="seconds")

    def day(self, rng: random.Random, low: int, high: int) -> str:
        """A date from ``low`` to ``high`` days after today (below 0: before it)."""
        return (self.now + timedelta(days=rng.randint(low, high))).date().isoformat()

    @property
    def people(self) -> list[Row]:
        return list(self.tables["people.people"].values())

    def related(self, person: int, *kinds: str) -> list[int]:
        """Ids of those who are one of these kinds to the person (all of them without kinds)."""
        if not self._related:
            for row in self.tables["people.relations"].values():
                self._related.setdefault((row["person_id"], row["kind"]), []).append(
                    row["other_id"]
                )
                self._related.setdefault((row["person_id"], ""), []).append(row["other_id"])
        return sorted(i for kind in kinds or ("",) for i in self._related.get((person, kind), []))

    def accounts(self, app: str, by: str = "email", share: float = 1.0, **values: Any) -> list[Row]:
        """Fills ``<app>.accounts``: one account a person, in ``share`` of the cases; id = person."""
        rng = self.rng(app, "accounts")
        rows = self.table(f"{app}.accounts")
        for person in self.people:
            if rng.random() >= share and person["id"] % 2:  # those with an even id have all
                continue
            rows[person["id"]] = {
                "id": person["id"],
                "first_name": person["first_name"],
                "last_name": person["last_name"],
                "email": person["email"],
                "username": person[by],
                "password": secret(self.seed, "password", app, person["id"])[:10],
                "registered_on": self.ago(rng, 365, 1200)[:10],
                **values,
            }
        return list(rows.values())


def supervisors(world: World) -> list[int]:
    """Ids of the people for whom an agent can work: those with an account of every app."""
    accounts = [rows for name, rows in world.tables.items() if name.endswith(".accounts")]
    return [i for i in world.tables["people.people"] if all(i in rows for rows in accounts)]
