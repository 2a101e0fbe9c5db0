"""From text to index terms: words of letters and digits, folded, without the commonest English ones."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 64  # characters of a term; longer runs are cut, not lost
_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")
STOP_WORDS = frozenset(
    "a an and are as at be been but by can did do does for from had has have he her his how if in into is it "
    "its of on or she that the their them there these they this those to was were what when where which who "
    "whom whose why will with".split()
)


def terms(text: str) -> list[str]:
    """Terms in order; accents are folded, ``walked`` and ``walks`` meet in one term."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    if not folded.isascii():
        folded = "".join(c for c in folded if not unicodedata.combining(c))
    words = _WORD.findall(_POSSESSIVE.sub("", folded))
    return [_stem(word[:LONGEST]) for word in words if word not in STOP_WORDS]


def _stem(word: str) -> str:
    """The plural and the two commonest verb endings off: enough for questions about passages."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
