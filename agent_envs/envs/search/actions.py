"""Which of search and answer an action is."""

from __future__ import annotations

import re
from typing import NamedTuple

_CLOSING = re.compile(r"</(?:search|answer)>", re.IGNORECASE)
_OPENING = re.compile(r"<(search|answer)>", re.IGNORECASE)


class Move(NamedTuple):
    """``kind``: ``search``, ``answer`` or "" (no block at all). ``valid``: exactly one block was there."""

    kind: str
    text: str
    valid: bool


def read_move(action: str) -> Move:
    """The block that is carried out: a search before the first closing tag, else an answer there.

    Two blocks are carried out as if the first stood alone, and are not valid.
    """
    closing = _CLOSING.search(action)
    if closing is None:
        return Move("", "", False)
    kind = closing[0][2:-1].lower()
    opening = re.search(f"<{kind}>", action[: closing.start()], re.IGNORECASE)
    if opening is None:
        return Move("", "", False)
    text = action[opening.end() : closing.start()].strip()
    return Move(kind, text, len(_OPENING.findall(action)) == 1)
