"""What the environment plays, whether the embedded world or the real benchmark runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Brief:
    """A task as its agent is told about it.

    Attributes:
        supervisor: first_name, last_name, email, phone_number of whom the agent works for.
        now: the world's date and time (ISO).
        difficulty: 1 to 3; None where it is not told.
    """

    task_id: str
    instruction: str
    supervisor: Mapping[str, str]
    now: str
    difficulty: int | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What an execution printed; ``lost``: the variables of earlier steps are gone."""

    output: str
    failed: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """One requirement. ``idle``: an agent that does nothing meets it, too."""

    requirement: str
    passed: bool
    idle: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What the checks of a task say.

    Attributes:
        completed: the agent said that it is done, and not that it gave up. Saying so earns nothing by
            itself, but no task succeeds without it.
    """

    verdicts: tuple[Verdict, ...] = ()
    completed: bool = True

    @property
    def success(self) -> bool:
        """All checks passed (the benchmark's task completion)."""
        return self.completed and bool(self.verdicts) and not self.failures

    @property
    def score(self) -> float:
        """Share of passed checks that an idle agent fails; 0 where what was right is so no more."""
        if any(verdict.idle and not verdict.passed for verdict in self.verdicts):
            return 0.0
        earned = [verdict.passed for verdict in self.verdicts if not verdict.idle]
        return sum(earned) / len(earned) if earned else 0.0

    @property
    def failures(self) -> tuple[str, ...]:
        failed = tuple(v.requirement for v in self.verdicts if not v.passed)
        return failed if self.completed else ("the task is marked as complete", *failed)


class Episode(Protocol):
    """A world in which code runs.

    Attributes:
        completed: the agent said that it is done.
    """

    brief: Brief
    completed: bool

    def execute(self, code: str) -> Shown:
        """Run code; never raises on any text."""

    def report(self) -> Report:
        """The checks as things stand."""

    def journal(self) -> Sequence[Any]:
        """JSON-able: what :meth:`replay` needs to come here again."""

    def replay(self, journal: Sequence[Any]) -> None:
        """Come from the start to where ``journal`` was written; ValueError where it does not fit."""

    def close(self) -> None:
        """Let go of what it holds."""
