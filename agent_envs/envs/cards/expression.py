"""Formulas as tokens, evaluated exactly by a small grammar.

::

    sum     = product {("+" | "-") product}
    product = factor {("*" | "/") factor}
    factor  = number | "(" sum ")" | sign factor        (the last only where signs are allowed)

Numbers are whole tokens, so ``2`` beside ``4`` is an error and never 24, and an operator pressed
twice is an error and never a power or a floor division.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


class FormulaError(ValueError):
    """The tokens are no formula, or divide by zero."""


def evaluate(tokens: Sequence[str], *, signs: bool = False) -> Fraction:
    """The exact value. Work is linear in the number of tokens.

    Args:
        tokens: numbers, ``+ - * /`` and brackets.
        signs: allow ``+`` and ``-`` before a factor.

    Raises:
        FormulaError: see there.
    """
    reader = _Reader(tokens, signs)
    value = reader.sum()
    if reader.next is not None:
        raise FormulaError(f"{reader.next!r} is out of place")
    return value


class _Reader:
    def __init__(self, tokens: Sequence[str], signs: bool) -> None:
        self._rest = iter(tokens)
        self._signs = signs
        self.next: str | None = next(self._rest, None)

    def _take(self) -> str | None:
        taken, self.next = self.next, next(self._rest, None)
        return taken

    def sum(self) -> Fraction:
        value = self._product()
        while self.next in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while self.next in ("*", "/"):
            times, factor = self._take() == "*", self._factor()
            if not times and not factor:
                raise FormulaError("it divides by zero")
            value = value * factor if times else value / factor
        return value

    def _factor(self) -> Fraction:
        mark = self._take()
        if mark is None:
            raise FormulaError("it is not complete")
        if mark.isdecimal():
            return Fraction(int(mark))
        if mark == "(":
            value = self.sum()
            if self._take() != ")":
                raise FormulaError("a bracket is not closed")
            return value
        if self._signs and mark in ("+", "-"):
            value = self._factor()
            return -value if mark == "-" else value
        raise FormulaError(f"{mark!r} is out of place")
