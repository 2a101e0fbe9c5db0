"""Cards as two characters, suit then rank (``H3``, ``DT``, ``SA``), and draws of them.

Draws use nothing but ``random.Random.random()``, the one method whose sequence Python keeps stable
across versions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from agent_envs.core.errors import OptionError
from agent_envs.core.seeding import keyed_seed

SUITS = "CDHS"
RANKS = "A23456789TJQK"
_SUIT_NAMES = {"C": "clubs", "D": "diamonds", "H": "hearts", "S": "spades"}
_RANK_NAMES = {"A": "ace", "T": "10", "J": "jack", "Q": "queen", "K": "king"}


def below(stream: random.Random, limit: int) -> int:
    """A number in [0, limit)."""
    return int(stream.random() * limit)


def draw_card(stream: random.Random, ranks: Sequence[str] = RANKS) -> str:
    """A card of one of ``ranks``, with replacement."""
    return SUITS[below(stream, len(SUITS))] + ranks[below(stream, len(ranks))]


def card_value(card: str, faces_as_10: bool = True) -> int:
    """Ace 1, faces 10 (or 11 to 13)."""
    value = RANKS.index(card[1]) + 1
    return min(value, 10) if faces_as_10 else value


def card_name(card: str) -> str:
    """``"king of hearts"``."""
    return f"{_RANK_NAMES.get(card[1], card[1])} of {_SUIT_NAMES[card[0]]}"


def read_card(card: object) -> str:
    """A card as a user writes it (``H10`` means ``HT``), or OptionError."""
    text = str(card).strip().upper()
    suit, rank = text[:1], text[1:]
    rank = "T" if rank == "10" else rank
    if len(rank) != 1 or suit not in SUITS or rank not in RANKS or not suit:
        raise OptionError(
            f"{card!r} is no card; a card is a suit of C D H S and a rank of A 2-9 T (or 10) J Q K"
        )
    return suit + rank


def read_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """A whole number in [low, high], or OptionError naming it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"{name} must be a whole number, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        span = f"at least {low}" if high is None else f"{low} to {high}"
        raise OptionError(f"{name} must be {span}, got {number}")
    return number


class Shoe:
    """Cards in the order in which they are drawn: the given ones first, then a keyed stream."""

    __slots__ = ("_given", "_key", "_stream", "_taken")

    def __init__(self, given: Sequence[str], *key: int) -> None:
        self._given, self._key = given, key
        self._taken = 0
        self._stream: random.Random | None = None  # made when first needed: half of a reset's time

    def take(self) -> str:
        """The next card; never runs out."""
        number, self._taken = self._taken, self._taken + 1
        if number < len(self._given):
            return self._given[number]
        if self._stream is None:
            self._stream = random.Random(keyed_seed(*self._key))
        return draw_card(self._stream)
