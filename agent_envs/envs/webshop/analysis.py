"""From text to index terms, as Lucene's English analysis does it.

Words by the rules of UAX #29 (Unicode up to 15, which is what the original's Lucene knows), each emoji
sequence one term; possessive ``'s`` off, lower case, 33 stop words out, Porter's stemmer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from agent_envs.core.errors import MissingExtra
from agent_envs.envs.webshop.porter import stem

MAX_WORD = 255  # Lucene cuts longer words into pieces of this length
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)

# Extended_Pictographic of Unicode 15: later versions leave out signs such as the black star
_PICTOGRAPHS = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf"
    "\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612"
    "\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747"
    "\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935"
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f0ff"
    "\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f"
    "\U0001f232-\U0001f23a\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa\U0001f400-\U0001f53d"
    "\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff"
    "\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f\U0001f888-\U0001f88f"
    "\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001faff"
    "\U0001fc00-\U0001fffd"
)
# the same rules for plain ASCII, ten times faster
_ASCII_WORD = re.compile(
    r"_*[a-z0-9](?:[a-z0-9_]|(?<=[a-z])[:.'](?=[a-z])|(?<=[0-9])[.,;'](?=[0-9]))*", re.IGNORECASE
)


@lru_cache(maxsize=1)
def _word() -> Callable[[str], list[str]]:
    """Finds the words of any text, by Unicode's word-break properties."""
    try:
        import regex
    except ImportError:
        raise MissingExtra("the shop's search", "webshop") from None
    x = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
    letter = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{x}"
    number = rf"[\p{{WB=Numeric}}]{x}"
    quote_or_dot = r"\p{WB=MidNumLet}\p{WB=Single_Quote}"
    run = (
        rf"(?:{letter}(?:[:\uff1a\ufe55\ufe13\p{{WB=MidLetter}}{quote_or_dot}]{x}(?={letter}))?"
        rf"|{number}(?:[\p{{WB=MidNum}}{quote_or_dot}]{x}(?={number}))?)+"
    )
    unit = rf"(?:(?:\p{{WB=Katakana}}{x})+|{run})"
    joiner = rf"\p{{WB=ExtendNumLet}}{x}"
    emoji = rf"[{_PICTOGRAPHS}](?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|[\U000e0020-\U000e007f])*"
    pattern = (
        rf"{emoji}(?:\u200d{emoji})*"
        r"|\p{RI}\p{RI}"
        r"|[0-9#*]\ufe0f?\u20e3"
        rf"|(?:{joiner})*{unit}(?:(?:{joiner})+{unit})*(?:{joiner})*"
        rf"|\p{{LB=Complex_Context}}+{x}"
        rf"|[\p{{Ideographic}}\p{{Script=Hiragana}}]{x}"
    )
    return regex.compile(pattern, regex.VERSION1).findall  # type: ignore[no-any-return]


@lru_cache(maxsize=1 << 17)
def _term(word: str) -> str:
    """The term of one word; "" for a stop word."""
    if word.endswith(("'s", "'S", "\u2019s", "\u2019S", "\uff07s", "\uff07S")):
        word = word[:-2]
    word = word.lower()
    if word in STOP_WORDS:
        return ""
    return stem(word) if len(word) > 2 else word


def words(text: str) -> list[str]:
    """The words of a text, pieces of overlong ones included."""
    found = _ASCII_WORD.findall(text) if text.isascii() else _word()(text)
    if len(text) > MAX_WORD and any(len(word) > MAX_WORD for word in found):
        return [w[i : i + MAX_WORD] for w in found for i in range(0, len(w), MAX_WORD)]
    return found


def analyse(text: str) -> list[str]:
    """The index terms of a text, in order, with repetitions."""
    return [term for word in words(text) if (term := _term(word))]
