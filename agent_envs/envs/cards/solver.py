"""Finds a formula that makes a target of all the cards, or proves that there is none.

For every subset of the cards all values that it can make are built from those of its parts, in
exact ratios of integers. The whole hand is not built: for each value of one part, the value that the other
part would need is looked up. So "none" is a proof, and four cards take well under a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from agent_envs.envs.cards.expression import FormulaError, evaluate

Tokens: TypeAlias = tuple[str, ...]
_Term: TypeAlias = tuple[Tokens, int]  # and how tightly its outermost operator binds
_Ratio: TypeAlias = tuple[int, int]  # in lowest terms, the second positive
_Values: TypeAlias = dict[_Ratio, _Term]

_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_NUMBER_BINDING = 3

# what an operator makes of target t and a (swapped: of a and t) is the b of this equation
_INVERSE = {
    ("+", False): ("-", True),  # t + a: b - a = t
    ("-", False): ("+", False),  # t - a: a + b = t
    ("-", True): ("-", False),  # a - t: a - b = t
    ("*", False): ("/", True),  # t * a: b / a = t
    ("/", False): ("*", False),  # t / a: a * b = t
    ("/", True): ("/", False),  # a / t: a / b = t
}

# where brackets can change a value: n is a number, o an operator
_SHAPES = {
    2: ("non",),
    4: (
        "nononon",
        "(non)onon",
        "(nonon)on",
        "((non)on)on",
        "(no(non))on",
        "no(non)on",
        "no(nonon)",
        "no((non)on)",
        "no(no(non))",
        "nono(non)",
        "(non)o(non)",
    ),
}


@lru_cache(maxsize=4096)
def solve(numbers: tuple[int, ...], target: int, operators: str = "+-*/") -> Tokens | None:
    """Tokens of a formula that uses each number once and makes ``target``; None: there is none."""
    values: dict[int, _Values] = {
        1 << i: {(n, 1): ((str(n),), _NUMBER_BINDING)} for i, n in enumerate(numbers)
    }
    whole = (1 << len(numbers)) - 1
    for subset in range(1, whole):
        if subset not in values:
            values[subset] = _reachable(subset, values, operators)
    for small, large in _splits(whole):
        for a, term in values[small].items():
            for operator, swapped, b in _partners(a, (target, 1)):
                other = values[large].get(b) if operator in operators else None
                if other is not None:
                    pair = (other, term) if swapped else (term, other)
                    return _join(operator, *pair)[0]
    return None


def _splits(subset: int) -> Iterator[tuple[int, int]]:
    """All ways to part a subset in two, the one with fewer cards first."""
    part = (subset - 1) & subset
    while part:
        other = subset ^ part
        if (part.bit_count(), part) <= (other.bit_count(), other):
            yield part, other
        part = (part - 1) & subset


def _reachable(subset: int, values: dict[int, _Values], operators: str) -> _Values:
    found: _Values = {}
    for one, two in _splits(subset):
        for a, left in values[one].items():
            for b, right in values[two].items():
                for operator, swapped, value in _results(a, b):
                    if operator in operators and value not in found:
                        pair = (right, left) if swapped else (left, right)
                        found[value] = _join(operator, *pair)
    return found


def _results(a: _Ratio, b: _Ratio) -> list[tuple[str, bool, _Ratio]]:
    """Each operator with what it makes of a and b; swapped: of b and a."""
    (p, q), (r, s) = a, b
    less = _lowest(p * s - r * q, q * s)
    found = [
        ("+", False, _lowest(p * s + r * q, q * s)),
        ("-", False, less),
        ("-", True, (-less[0], less[1])),
        ("*", False, _lowest(p * r, q * s)),
    ]
    if r:
        found.append(("/", False, _lowest(p * s, q * r)))
    if p:
        found.append(("/", True, _lowest(r * q, s * p)))
    return found


def _partners(a: _Ratio, target: _Ratio) -> list[tuple[str, bool, _Ratio]]:
    """Each operator with the b that makes the target with a; swapped: b stands first.

    A zero is left to ``+`` and ``-``: no product with it makes a target, and 0 / 0 makes none.
    """
    found = [(*_INVERSE[operator, swapped], b) for operator, swapped, b in _results(target, a)]
    return found if a[0] else [partner for partner in found if partner[0] in "+-"]


def _lowest(p: int, q: int) -> _Ratio:
    if q < 0:
        p, q = -p, -q
    divisor = gcd(p, q)
    return p // divisor, q // divisor


def _join(operator: str, left: _Term, right: _Term) -> _Term:
    binding = _BINDING[operator]
    # the right side of "-" and "/" needs brackets around its own kind too
    right_needs = binding + (operator in "-/")
    tokens = (*_bracketed(left, binding), operator, *_bracketed(right, right_needs))
    return tokens, binding


def _bracketed(term: _Term, needed: int) -> Tokens:
    tokens, binding = term
    return tokens if binding >= needed else ("(", *tokens, ")")


@lru_cache(maxsize=4096)
def plan(prefix: Tokens, numbers: tuple[int, ...], target: int, operators: str) -> Tokens | None:
    """A solution that begins with ``prefix``; None where there is none.

    Beyond :func:`solve`'s own formula, all formulas without superfluous brackets are tried.
    """
    solution = solve(numbers, target, operators)
    if solution is None or solution[: len(prefix)] == prefix:
        return solution
    for shape in _SHAPES.get(len(numbers), ()):
        for formula in _fill(shape, prefix, numbers, operators):
            if _makes(formula, target):
                return formula
    return None


def _fill(shape: str, prefix: Tokens, numbers: tuple[int, ...], operators: str) -> Iterator[Tokens]:
    """All formulas of a shape that begin with ``prefix``."""
    if not shape:
        yield ()
        return
    names = {str(n) for n in numbers}
    choices = {"n": sorted(names), "o": list(operators)}.get(shape[0], [shape[0]])
    for token in choices:
        if prefix and token != prefix[0]:
            continue
        rest = list(numbers)
        if shape[0] == "n":
            rest.remove(int(token))
        for tail in _fill(shape[1:], prefix[1:], tuple(rest), operators):
            yield (token, *tail)


def _makes(formula: Tokens, target: int) -> bool:
    try:
        return evaluate(formula) == target
    except FormulaError:
        return False
