"""Scoring answers: exact match after SQuAD's normalisation."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation off, English articles off, single blanks (SQuAD v1.1's evaluation)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Iterable[str]) -> bool:
    """Is it one of the gold answers. What normalises to nothing matches nothing (FIELD_CASES F047)."""
    given = normalise(answer)
    return bool(given) and any(given == normalise(gold) for gold in golds)


def contains_match(answer: str, golds: Iterable[str]) -> bool:
    """Does it contain one of the gold answers, as whole words (Search-R1's sub-EM takes any substring)."""
    given = f" {normalise(answer)} "
    return any(bool(gold := normalise(text)) and f" {gold} " in given for text in golds)
