"""Templates that never break on what they are filled with.

Only ``{name}`` with a known name is a placeholder; any other brace is text, so JSON samples may
stand in a template (FIELD_CASES F015), and filled-in text is never looked at again. ``{{name}}``
writes a literal ``{name}``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any

from agent_envs.core.errors import TemplateError

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")

Parts = list[Any]
"""Text and images in order; images are anything that is not a ``str``."""


class Template:
    """A compiled template.

    Args:
        text: the template.
        names: placeholders that it may use.

    Raises:
        TemplateError: it names another placeholder; the message lists the known ones.
    """

    __slots__ = ("_places", "_skeleton")

    def __init__(self, text: str, names: Collection[str]) -> None:
        skeleton, places = [""], []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            skeleton[-1] += text[end : match.start()]
            end = match.end()
            escaped, name = match.groups()
            if escaped:
                skeleton[-1] += "{" + escaped + "}"
                continue
            if name not in names:
                raise TemplateError(
                    f"unknown placeholder {{{name}}} in the template; known: "
                    f"{', '.join(sorted(names))} (write {{{{{name}}}}} for the literal text)"
                )
            places.append((len(skeleton), name))
            skeleton += ["", ""]
        skeleton[-1] += text[end:]
        self._skeleton, self._places = skeleton, places

    def fill(self, values: Mapping[str, str | Parts]) -> str | Parts:
        """The text, or text and images in order where a value holds images."""
        pieces: Parts = self._skeleton.copy()
        for place, name in self._places:
            pieces[place] = values[name]
        try:
            return "".join(pieces)
        except TypeError:  # images among them
            flat: Parts = []
            for piece in pieces:
                flat += [piece] if isinstance(piece, str) else piece
            return merge(flat)


def merge(pieces: Parts) -> str | Parts:
    """Join neighbouring texts; a plain ``str`` where nothing else is left."""
    merged: Parts = []
    for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str)):
        if not is_text:
            merged += run
        elif text := "".join(run):
            merged.append(text)
    if all(isinstance(piece, str) for piece in merged):
        return "".join(merged)
    return merged
