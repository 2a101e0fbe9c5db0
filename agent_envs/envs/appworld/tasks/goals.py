"""What must be true at a task's end, and how that is checked against an overlay's changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.envs.appworld.episode import Verdict

Values = Mapping[str, Any]  # column -> its value, or a function that says whether a value will do
Changes = Mapping[str, Mapping[int, Mapping[str, Any] | None]]

_NUMBER = re.compile(r"[+-]?\$?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]*)?")  # with $ and 1,000
_LARGEST = 1e15  # an answer beyond it is no number
BOOKKEEPING = frozenset({"supervisor.tasks"})


@dataclass(frozen=True, slots=True)
class Goal:
    """The end of a task.

    Args:
        answer: what the agent has to answer; None where nothing is asked.
        inserted: (table, values) of each row that has to be new.
        updated: (table, id, values) of each row that has to be changed.
        deleted: (table, id) of each row that has to be gone.
        allowed: tables that may change besides (what an app writes by itself).
    """

    answer: Any = None
    inserted: Sequence[tuple[str, Values]] = ()
    updated: Sequence[tuple[str, int, Values]] = ()
    deleted: Sequence[tuple[str, int]] = ()
    allowed: Sequence[str] = field(default=())


def verdicts(
    goal: Goal,
    changes: Changes,
    existing: Callable[[str, int], bool],
    answer: Any,
) -> tuple[Verdict, ...]:
    """The checks of a goal.

    Args:
        changes: the overlay's, by table and id; None for a row that is gone.
        existing: whether the base world has a row.
        answer: what ``complete_task`` was told; None where it was told none.
    """
    left = {
        (table, number): row
        for table, rows in changes.items()
        if table not in BOOKKEEPING
        for number, row in rows.items()
    }
    found: list[Verdict] = []
    if goal.answer is not None:
        found.append(Verdict("the answer is right", same_answer(goal.answer, answer), False))
    found += _expected(goal, left, existing)
    others = sorted({table for table, _ in left if table not in goal.allowed})
    what = f" (changed: {', '.join(others)})" if others else ""
    found.append(Verdict(f"nothing else is changed{what}", not others, True))
    return tuple(found)


def _expected(
    goal: Goal,
    left: dict[tuple[str, int], Mapping[str, Any] | None],
    existing: Callable[[str, int], bool],
) -> Iterator[Verdict]:
    """The changes that have to be; what they explain is taken out of ``left``."""
    for table, values in goal.inserted:
        match = next(
            (
                key
                for key, row in left.items()
                if key[0] == table and row is not None and not existing(*key) and fits(row, values)
            ),
            None,
        )
        if match is not None:
            del left[match]
        yield Verdict(f"new in {table}: {_shown(values)}", match is not None, False)
    for table, number, values in goal.updated:
        row = left.get((table, number))
        right = row is not None and fits(row, values)
        if right:
            del left[table, number]
        yield Verdict(f"{table} {number} has {_shown(values)}", right, False)
    for table, number in goal.deleted:
        gone = (table, number) in left and left[table, number] is None
        if gone:
            del left[table, number]
        yield Verdict(f"{table} {number} is gone", gone, False)


def fits(row: Mapping[str, Any], values: Values) -> bool:
    """Whether a row has these values; amounts to the cent."""
    return all(
        bool(value(row.get(name))) if callable(value) else _same(value, row.get(name))
        for name, value in values.items()
    )


def same_items(wanted: Sequence[Any]) -> Callable[[Any], bool]:
    """Whether a list holds these items, in any order."""
    return lambda found: isinstance(found, list) and sorted(found) == sorted(wanted)


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, int | float):
        return abs(wanted - found) < 0.005
    return bool(wanted == found)


def _shown(values: Values) -> str:
    plain = {n: "(as asked)" if callable(v) else v for n, v in values.items()}
    return json.dumps(plain, ensure_ascii=False, default=str)


def same_answer(wanted: Any, found: Any) -> bool:
    """Whether an answer is the wanted one: case, quotes, order of lists and form of numbers don't count."""
    if found is None or _normal(wanted) != _normal(found):
        return False
    # a count is no rounded number
    return not (type(wanted) is int and isinstance(found, float) and found != wanted)


def _normal(answer: Any) -> Any:
    if isinstance(answer, list | tuple | set | frozenset):
        return sorted(str(_normal(part)) for part in answer)
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return f"{answer:.2f}" if abs(answer) < _LARGEST else "(a number too large)"
    text = str(answer).strip().strip("\"'").strip().lower()
    if len(text) < 30 and _NUMBER.fullmatch(text):
        return _normal(float(re.sub(r"[$,]", "", text)))
    if isinstance(answer, str) and "," in answer:
        return sorted(str(_normal(part)) for part in answer.split(",") if part.strip())
    return text
