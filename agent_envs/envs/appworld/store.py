"""The data of all apps: immutable base rows per world, a copy-on-write overlay per episode.

The overlay holds only what differs from the base, so it *is* the diff that a task's checks read;
forking copies no row.
"""

from __future__ import annotations

import hashlib
import json
from bisect import insort
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

Row = Mapping[str, Any]  # JSON values; has "id"; never changed once stored
Tables = Mapping[str, Mapping[int, Row]]  # "<app>.<table>" -> id -> row, ids rising


class World:
    """The frozen start of every episode of one seed. Rows are shared: never change one.

    ``now`` is an ISO date-time. ``brand`` says how the apps are called in its texts.
    """

    def __init__(self, seed: int, now: str, tables: Tables, brand: str = "real") -> None:
        self.seed = seed
        self.now = now
        self.brand = brand
        self.tables: Tables = MappingProxyType(
            {name: MappingProxyType(dict(rows)) for name, rows in tables.items()}
        )
        self._indexes: dict[tuple[str, str], dict[Any, tuple[int, ...]]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        tables = {name: dict(rows) for name, rows in self.tables.items()}
        return World, (self.seed, self.now, tables, self.brand)

    @cached_property
    def start(self) -> datetime:
        return datetime.fromisoformat(self.now)

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of everything in the world."""
        content = {"now": self.now, "brand": self.brand, "tables": dict(self.tables.items())}
        text = json.dumps(content, default=dict, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def index(self, table: str, field: str) -> Mapping[Any, tuple[int, ...]]:
        """Value of ``field`` -> ids of the base rows that have it (built when first asked for)."""
        key = table, field
        if key not in self._indexes:
            found: dict[Any, list[int]] = {}
            for number, row in self.tables[table].items():
                found.setdefault(row[field], []).append(number)
            self._indexes[key] = {value: tuple(ids) for value, ids in found.items()}
        return self._indexes[key]


class Overlay:
    """One episode's view of a world: tables, the simulated clock, logins and the active task."""

    __slots__ = ("_changed", "_next", "logins", "seconds", "task", "tokens", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.seconds = 0  # since the world's now
        self.logins = 0  # counts up, so that no two tokens are alike
        self.tokens: dict[str, tuple[str, int, int]] = {}  # token -> (app, person, expiry second)
        self.task: Row | None = None  # e.g. {"instruction": ...}; not part of the changes
        self._changed: dict[str, dict[int, Row | None]] = {}  # None: deleted
        self._next: dict[str, int] = {}

    # reading

    def get(self, table: str, number: int) -> Row | None:
        changed = self._changed.get(table)
        if changed is not None and number in changed:
            return changed[number]
        return self._base(table).get(number)

    def rows(self, table: str) -> Iterator[Row]:
        """All rows in id order, as they are now (changes during the iteration are not seen)."""
        base = self._base(table)
        changed = self._changed.get(table)
        if not changed:
            return iter(base.values())
        return iter(self._merged(base, base, changed))

    def where(self, table: str, **equal: Any) -> list[Row]:
        """The rows, in id order, whose fields have these values; fast by the first field."""
        field, value = next(iter(equal.items()))
        base = self._base(table)
        ids = self.world.index(table, field).get(value, ())
        changed = self._changed.get(table)
        rows = self._merged(base, ids, changed) if changed else [base[i] for i in ids]
        return [row for row in rows if all(row[key] == want for key, want in equal.items())]

    def _base(self, table: str) -> Mapping[int, Row]:
        try:
            return self.world.tables[table]
        except KeyError:
            known = ", ".join(sorted(self.world.tables))
            raise KeyError(f"no table {table!r} in the world; there are {known}") from None

    @staticmethod
    def _merged(base: Mapping[int, Row], ids: Any, changed: Mapping[int, Row | None]) -> list[Row]:
        """Base rows of ``ids`` and every changed row, deleted ones left out, in id order."""
        numbers = [i for i in ids if i not in changed]
        for number, row in changed.items():
            if row is not None:
                insort(numbers, number)
        return [changed[i] if i in changed else base[i] for i in numbers]  # type: ignore[misc]

    # writing

    def insert(self, table: str, **values: Any) -> Row:
        """A new row with the next id (ids are never used twice)."""
        number = self._next.get(table) or max(self._base(table), default=0) + 1
        self._next[table] = number + 1
        row = {"id": number, **values}
        self._changed.setdefault(table, {})[number] = row
        return row

    def update(self, table: str, number: int, /, **changes: Any) -> Row:
        """The row with some fields changed. KeyError where there is no such row or field."""
        old = self.get(table, number)
        if old is None or not changes.keys() <= old.keys():
            raise KeyError(f"{table} {number}: no such row, or no such field of {sorted(changes)}")
        row = {**old, **changes}
        self._put(table, number, row)
        return row

    def delete(self, table: str, number: int) -> None:
        if self.get(table, number) is None:
            raise KeyError(f"{table} {number}: no such row")
        self._put(table, number, None)

    def _put(self, table: str, number: int, row: Row | None) -> None:
        changed = self._changed.setdefault(table, {})
        if row == self.world.tables[table].get(number):  # as at the start: no change
            changed.pop(number, None)
        else:
            changed[number] = row
        if not changed:
            del self._changed[table]

    def changes(self) -> dict[str, dict[int, Row | None]]:
        """What differs from the base; None for a deleted row. Costs O(changes)."""
        return {table: dict(changed) for table, changed in self._changed.items()}

    # the clock

    @property
    def now(self) -> datetime:
        return self.world.start + timedelta(seconds=self.seconds)

    def advance(self, seconds: int) -> None:
        self.seconds += seconds

    # forks and snapshots

    def fork(self) -> Overlay:
        """An independent copy; rows are shared since they never change."""
        copy = Overlay.__new__(Overlay)
        copy.world, copy.seconds, copy.logins, copy.task = (
            self.world,
            self.seconds,
            self.logins,
            self.task,
        )
        copy.tokens = self.tokens.copy()
        copy._changed = {table: changed.copy() for table, changed in self._changed.items()}
        copy._next = self._next.copy()
        return copy

    def snapshot(self) -> dict[str, Any]:
        """JSON-able; sizes with the changes. See :meth:`restore`."""
        return {
            "seconds": self.seconds,
            "logins": self.logins,
            "tokens": {token: list(held) for token, held in self.tokens.items()},
            "task": self.task,
            "next": dict(self._next),
            "changed": {
                table: {str(number): row for number, row in changed.items()}
                for table, changed in self._changed.items()
            },
        }

    @classmethod
    def restore(cls, world: World, snapshot: Mapping[str, Any]) -> Overlay:
        """The overlay that gave ``snapshot`` (also after a round trip through JSON)."""
        overlay = cls(world)
        overlay.seconds = snapshot["seconds"]
        overlay.logins = snapshot["logins"]
        overlay.tokens = {
            token: (app, person, expiry)
            for token, (app, person, expiry) in snapshot["tokens"].items()
        }
        overlay.task = snapshot["task"]
        overlay._next = dict(snapshot["next"])
        overlay._changed = {
            table: {int(number): row for number, row in changed.items()}
            for table, changed in snapshot["changed"].items()
        }
        return overlay
