"""What retrieval gives back, and how the replies of other systems' servers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Document(NamedTuple):
    """A passage. ``contents`` begins with the title in quotation marks, on a line of its own."""

    id: str
    contents: str


class Hit(NamedTuple):
    """A document found; ``score`` is None where a server gave none."""

    document: Document
    score: float | None = None


class Found(NamedTuple):
    """What one query found, best first.

    Attributes:
        error: why the search failed; "" where it did not.
        cut: the query was longer than the retriever reads.
    """

    hits: tuple[Hit, ...] = ()
    error: str = ""
    cut: bool = False


class Retriever(Protocol):
    """Anything with this method."""

    def search(self, queries: Sequence[str], topk: int) -> list[Found]:
        """One :class:`Found` per query, in order, each with at most ``topk`` different documents."""


def read_hit(value: Any) -> Hit:
    """A hit from a server's reply, in any of the shapes in use (FIELD_CASES F050, F052).

    ``{"document": {...}, "score": s}`` or the bare document; its text as ``contents``, as ``text``, or as
    ``title`` and ``text``.

    Raises:
        ValueError: no text is found in it.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"a document is a {type(value).__name__}, not an object")
    inner = value.get("document", value)
    if isinstance(inner, str):
        inner = {"contents": inner}
    if not isinstance(inner, Mapping):
        raise ValueError(f"a document is a {type(inner).__name__}, not an object")
    text = inner.get("contents")
    if text is None and inner.get("text") is not None:
        title = inner.get("title")
        text = f'"{title}"\n{inner["text"]}' if title else inner["text"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError(
            f"a document without text; its fields: {', '.join(map(str, inner)) or 'none'}"
        )
    return Hit(Document(_clean(str(inner.get("id", ""))), _clean(text)), _score(value.get("score")))


def _score(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any size
        return None


def _clean(text: str) -> str:
    """JSON may spell half a surrogate pair, which no observation and no reply can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
