"""Templates that never break on what they are filled with.

Only ``{name}`` with a known name is a placeholder; any other brace is text, so JSON samples may
stand in a template (FIELD_CASES F015), and filled-in text is never looked at again. ``{{name}}``
writes a literal ``{name}``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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

    __slots__ = ("_literals", "_names", "uses")

    def __init__(self, text: str, names: Collection[str]) -> None:
        literals, found = [""], []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            literals[-1] += text[end : match.start()]
            end = match.end()
            escaped, name = match.groups()
            if escaped:
                literals[-1] += "{" + escaped + "}"
                continue
            if name not in names:
                raise TemplateError(
                    f"unknown placeholder {{{name}}} in the template; known: "
                    f"{', '.join(sorted(names))} (write {{{{{name}}}}} for the literal text)"
                )
            found.append(name)
            literals.append("")
        literals[-1] += text[end:]
        self._literals, self._names = tuple(literals), tuple(found)
        self.uses = frozenset(found)

    def fill(self, values: Mapping[str, str | Parts]) -> str | Parts:
        """The text, or text and images in order where a value holds images."""
        pieces: Parts = [self._literals[0]]
        plain = True
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            value = values[name]
            if isinstance(value, str):
                pieces.append(value)
            else:
                pieces += value
                plain = False
            pieces.append(literal)
        return "".join(pieces) if plain else merge(pieces)


def merge(pieces: Parts) -> str | Parts:
    """Join neighbouring texts; a plain ``str`` where nothing else is left."""
    merged: Parts = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        elif not isinstance(piece, str) or piece:
            merged.append(piece)
    if all(isinstance(piece, str) for piece in merged):
        return "".join(merged)
    return merged
