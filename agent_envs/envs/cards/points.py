"""The two games in which a formula is built from cards."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from agent_envs.core.actions import Actions
from agent_envs.core.env import Obs, Outcome
from agent_envs.core.errors import OptionError, flag, one_of
from agent_envs.envs.cards.deck import card_name, card_value, draw_card, read_card
from agent_envs.envs.cards.drawing import points_picture
from agent_envs.envs.cards.expression import FormulaError, evaluate
from agent_envs.envs.cards.game import SIGNS, CardGame
from agent_envs.envs.cards.solver import plan, solve

WON, LOST, REFUSED = 10.0, -1.0, -1.0
BLANK = " "
COMPATIBLE = (None, "original")


class PointsGame(CardGame):
    """The rules of both games.

    Attributes:
        target: the value to make.
        hand: how many cards.
        keys: operators (and brackets) that can be pressed.
        entries: after how many entries ``=`` still counts; one more, and the formula is full.
    """

    target: ClassVar[int]
    hand: ClassVar[int]
    keys: ClassVar[str]
    entries: ClassVar[int]
    start_options: ClassVar[tuple[str, ...]] = ("cards",)

    def __init__(
        self,
        *,
        treat_face_cards_as_10: bool = True,
        solvable_only: bool = True,
        compat: str | None = None,
        **options: Any,
    ) -> None:
        one_of("compat", compat, COMPATIBLE)
        flag("treat_face_cards_as_10", treat_face_cards_as_10)
        flag("solvable_only", solvable_only)
        super().__init__(**options)
        self.treat_face_cards_as_10, self.solvable_only = treat_face_cards_as_10, solvable_only
        self.compat = compat
        self._limit_steps(self.entries + 2)  # every action but "=" adds an entry, the last is lost
        self._cards: tuple[str, ...] = ()
        self._numbers: tuple[int, ...] = ()
        self._solvable = False
        self._formula: tuple[str, ...] = ()
        self._used: tuple[bool, ...] = ()
        self._pressed = False

    @abstractmethod
    def _draw(self, stream: random.Random) -> tuple[str, ...]:
        """The cards of a deal under ``solvable_only``."""

    @property
    def operators(self) -> str:
        """The keys without the brackets."""
        return self.keys.strip("()")

    @property
    def task(self) -> str:
        numbers = ", ".join(map(str, self._numbers))
        return f"Make {self.target} of {numbers}, using each number exactly once."

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        return "given/" + " ".join(self._given(options["cards"]))

    def _given(self, cards: Any) -> tuple[str, ...]:
        if isinstance(cards, str) or not hasattr(cards, "__iter__"):
            raise OptionError(f"cards must be a list such as ['H3', 'DK'], got {cards!r}")
        read = tuple(map(read_card, cards))
        if len(read) != self.hand:
            raise OptionError(f"{type(self).__name__} needs {self.hand} cards, got {len(read)}")
        return read

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        self._cards = self._given(options["cards"]) if options else self._dealt(task_id)
        self._numbers = self._values(self._cards)
        self._solvable = self._can_solve(self._numbers)
        self._formula, self._used, self._pressed = (), (False,) * self.hand, False
        return self._see()

    def _dealt(self, task_id: str) -> tuple[str, ...]:
        stream = self._stream(task_id)
        if self.solvable_only:
            return self._draw(stream)
        return tuple(draw_card(stream) for _ in range(self.hand))

    def _values(self, cards: Sequence[str]) -> tuple[int, ...]:
        return tuple(card_value(card, self.treat_face_cards_as_10) for card in cards)

    def _can_solve(self, numbers: Sequence[int]) -> bool:
        return solve(tuple(sorted(numbers)), self.target, self.operators) is not None

    def _act(self, action: str) -> Outcome:
        entry = self._read(action)
        valid = entry is not None
        if len(self._formula) > self.entries:  # full: too late even for "="
            return Outcome(self._see(), REFUSED, action_valid=valid)
        if entry == "=":
            self._pressed = True
            won = self._value() == self.target and all(self._used)
            return Outcome(self._see(), WON if won else LOST, True, won)
        self._enter(BLANK if entry is None else entry)
        return Outcome(self._see(), 0.0 if valid else REFUSED, action_valid=valid)

    def _read(self, action: str) -> str | None:
        """The entry that an action means, None where it is refused."""
        action = action.strip()
        action = SIGNS.get(action, action)
        return action if action in self.admissible_actions() else None

    def _enter(self, entry: str) -> None:
        self._formula = (*self._formula, entry)
        if entry.isdecimal():
            unused = zip(self._numbers, self._used, strict=True)
            place = list(unused).index((int(entry), False))
            self._used = (*self._used[:place], True, *self._used[place + 1 :])

    def _tokens(self) -> tuple[str, ...]:
        return tuple(entry for entry in self._formula if entry != BLANK)

    def _value(self) -> Fraction | None:
        """What the formula makes; None where it is none."""
        try:
            return evaluate(self._tokens(), signs=self.compat == "original")
        except FormulaError:
            return None

    def _unused(self) -> tuple[int, ...]:
        return tuple(n for n, used in zip(self._numbers, self._used, strict=True) if not used)

    def admissible_actions(self) -> list[str]:
        return _admissible(self._unused(), self.keys)

    def expert_action(self) -> str:
        """The next entry of a solution that begins like the formula so far.

        ``=`` where there is none, where what is left of it no longer fits into the formula, and
        where the formula is complete. Formulas with superfluous brackets count as "none".
        """
        done = self._tokens()
        solution = plan(done, tuple(sorted(self._numbers)), self.target, self.operators)
        missing = () if solution is None else solution[len(done) :]
        fits = len(missing) <= self.entries - len(self._formula)
        return missing[0] if missing and fits else "="

    def _extra_info(self) -> Mapping[str, Any]:
        return {
            "formula": "".join(self._formula),
            "cards": list(self._cards),
            "numbers": list(self._numbers),
            "solvable": self._solvable,
        }

    def _text(self) -> str:
        unused = ", ".join(map(str, self._unused())) or "none"
        shown = " ".join("_" if entry == BLANK else entry for entry in self._formula)
        full = len(self._formula) > self.entries
        size = "full" if full else f"{len(self._formula)} of {self.entries} entries"
        lines = (
            _described(self._cards, self._numbers),
            f"Unused numbers: {unused}",
            f"Formula ({size}): {shown or 'empty'}",
        )
        return "\n".join((*lines, self._result()) if self._pressed else lines)

    def _result(self) -> str:
        value = self._value()
        if value is None:
            return "Result: this is no formula."
        if value != self.target:
            return f"Result: {value}, not {self.target}."
        used = all(self._used)
        return f"Result: {value}, " + ("and every card is used." if used else "but cards are left.")

    def _picture(self) -> np.ndarray:
        value = self._value() if self._pressed else None
        shown = ("?" if value is None else str(value)) if self._pressed else None
        won = value == self.target and all(self._used)
        return points_picture(
            self.image_size, self.target, self._cards, self._used, self._formula, shown, won
        ).copy()

    def _deal(self) -> list[Any]:
        return [*self._cards, *self._numbers]

    def _progress(self) -> Any:
        return [*self._formula, *("=" * self._pressed)]

    def _resume(self, progress: Any) -> None:
        for entry in progress:
            if self._pressed or entry not in (BLANK, *self.admissible_actions()):
                raise ValueError(f"{entry!r} cannot follow {self._formula}")
            if entry == "=":
                self._pressed = True
            else:
                self._enter(entry)


@lru_cache(maxsize=4096)
def _admissible(unused: tuple[int, ...], keys: str) -> Actions:
    return Actions([*map(str, dict.fromkeys(unused)), *keys, "="])


@lru_cache(maxsize=4096)
def _described(cards: tuple[str, ...], numbers: tuple[int, ...]) -> str:
    pairs = zip(cards, numbers, strict=True)
    return "Cards: " + ", ".join(f"{card_name(card)} = {number}" for card, number in pairs)
