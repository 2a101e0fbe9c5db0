"""Searched and paged answers: relevance to a query, order, and the cut to a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Item = dict[str, Any]


def relevance(query: str, texts: Iterable[str]) -> int:
    """How well texts match a query: 3 for the whole phrase, then 2 per word, 1 per begun word."""
    text = " ".join(texts).lower()
    query = " ".join(query.lower().split())
    have = re.findall(r"\w+", text)
    score = 3 * (query in text)
    for word in dict.fromkeys(re.findall(r"\w+", query)):
        if word in have:
            score += 2
        elif len(word) > 2 and any(other.startswith(word) for other in have):
            score += 1
    return score


def page_of(items: list[Item], searched: tuple[str, ...], page: Mapping[str, Any]) -> list[Item]:
    """Ranked by the query, cut to the page, sorted (before the cut where there is no query).

    Args:
        searched: fields that the query is matched with.
        page: values of ``query``, ``page_index``, ``page_limit`` (None: no pages) and ``sort_by``.
    """
    query, sort_by = page["query"], page["sort_by"]
    asked = bool(query and query.strip())
    if asked:
        scored = [(relevance(query, _texts(item, searched)), item) for item in items]
        kept = [pair for pair in scored if pair[0]]
        items = [item for _, item in sorted(kept, key=lambda pair: -pair[0])]
    elif sort_by:
        items = _sorted(items, sort_by)
    if page["page_limit"] is None:  # a search without pages
        return items
    start = page["page_index"] * page["page_limit"]
    items = items[start : start + page["page_limit"]]
    return _sorted(items, sort_by) if asked and sort_by else items


def _texts(item: Mapping[str, Any], fields: tuple[str, ...]) -> Iterable[str]:
    for name in fields:
        value = item[name]
        yield value if isinstance(value, str) else " ".join(map(str, value or ()))


def _sorted(items: list[Item], sort_by: str) -> list[Item]:
    name = sort_by[1:]
    return sorted(
        items, key=lambda item: (item[name] is None, item[name] or 0), reverse=sort_by[0] == "-"
    )
