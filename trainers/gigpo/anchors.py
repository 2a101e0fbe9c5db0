"""Anchor groups: which step samples of a group were taken in the same state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core import MissingExtra, OptionError
from trainers.gigpo.columns import Labels, labels, number, pairs


def anchor_groups(
    anchors: Sequence[Any] | np.ndarray,
    group_ids: ArrayLike | Sequence[Hashable],
    similarity: float | None = None,
) -> Labels:
    """One label per sample: equal where group and anchor state are the same (GiGPO, equation 6).

    Labels are numbered by first appearance. Anchors are texts, numbers, arrays, or lists, tuples, sets and
    dicts of these. Values of different types differ, arrays also by shape and dtype; a list equals the
    tuple of its items; None (state unknown) equals nothing.

    ``similarity`` in (0, 1), texts only: a text joins the first cluster of its group whose first member is
    at least that similar by ``difflib.SequenceMatcher(None, text, first, autojunk=False).ratio()``. The
    clusters depend on the order of the samples.
    """
    if isinstance(anchors, str | bytes) or not hasattr(anchors, "__len__"):
        raise ValueError(f"anchors: expected one per sample, got {type(anchors).__name__}")
    group = labels("group_ids", group_ids, len(anchors))
    if similarity is not None:
        return _similar(anchors, group, _threshold(similarity))
    return pairs(group, number([_key(i, anchor) for i, anchor in enumerate(anchors)]))


def _key(index: int, anchor: Any) -> Hashable:
    """A hashable that is equal exactly for equal states."""
    if isinstance(anchor, str):  # also NumPy's
        return anchor
    if anchor is None:
        return (None, index)
    if isinstance(anchor, np.generic) and anchor.dtype.kind != "V":
        anchor = anchor.item()
    if isinstance(anchor, bool | int | float | complex | bytes):
        return (type(anchor).__name__, anchor)
    if isinstance(anchor, list | tuple):
        return ("list", *(_key(index, item) for item in anchor))
    if isinstance(anchor, dict):
        return ("dict", frozenset((_key(index, k), _key(index, v)) for k, v in anchor.items()))
    if isinstance(anchor, set | frozenset):
        return ("set", frozenset(_key(index, item) for item in anchor))
    if hasattr(anchor, "__array_interface__") or hasattr(anchor, "__array__"):  # also pictures
        array = np.asarray(anchor)
        if array.dtype.kind == "O":
            return ("objects", array.shape, _key(index, array.tolist()))
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        return ("array", array.dtype.str, array.shape, digest)
    if not isinstance(anchor, Hashable) or type(anchor).__hash__ is object.__hash__:  # by identity
        raise ValueError(f"anchors[{index}]: cannot compare states of type {type(anchor).__name__}")
    return (type(anchor).__qualname__, anchor)


def _threshold(similarity: float) -> float:
    if not 0 < similarity < 1:
        raise OptionError(
            f"similarity: expected a number in (0, 1), or None for exact states; got {similarity!r}"
        )
    return float(similarity)


def _similar(anchors: Sequence[Any] | np.ndarray, group: Labels, threshold: float) -> Labels:
    """Greedy first fit over the distinct texts of each group, in order of appearance.

    Texts seen before go where they went before: the first clusters have not changed since, so the naive
    pass over all samples ends with the same clusters.
    """
    bound = _lcs()
    for index, anchor in enumerate(anchors):
        if not (anchor is None or isinstance(anchor, str)):
            raise ValueError(
                f"anchors[{index}]: similarity compares texts, got {type(anchor).__name__}"
            )
    state = pairs(group, number([_key(i, anchor) for i, anchor in enumerate(anchors)]))
    _, first = np.unique(state, return_index=True)
    heads: dict[int, list[tuple[int, str]]] = {}  # the clusters of each group and their first texts
    cluster_of = np.empty(len(first), np.int64)
    clusters = 0
    for which, index in enumerate(first.tolist()):
        text, known = anchors[index], heads.setdefault(int(group[index]), [])
        for cluster, head in known if text is not None else ():
            if _ratio_reaches(threshold, text, head, bound):
                cluster_of[which] = cluster
                break
        else:
            cluster_of[which] = clusters
            if text is not None:
                known.append((clusters, text))
            clusters += 1
    return cluster_of[state]


def _ratio_reaches(threshold: float, text: str, first: str, bound: Callable[..., int]) -> bool:
    """``SequenceMatcher(None, text, first, autojunk=False).ratio() >= threshold``, much sooner.

    ratio = 2 M / T: M characters of T in both texts lie in matching blocks. M is at most the length of the
    longest common subsequence, which bit-parallel code finds a thousand times faster and which mostly
    decides. The blocks are then taken as difflib takes them, until M or what is left of it decides.

    difflib's default ``autojunk`` would ignore every character that is frequent in a text of 200 or more:
    a grid with one changed cell scores 0.42 instead of 0.996.
    """
    total = len(text) + len(first)
    least = max(0, ceil(threshold * total / 2) - 1)  # one less, against rounding
    possible = min(bound(text, first, score_cutoff=least), len(text), len(first))
    matched, regions = 0, [(text, first)]
    while regions and 2.0 * matched / total < threshold <= 2.0 * possible / total:
        left, right = regions.pop()
        i, j, length = _longest_block(left, right)
        matched += length
        around = ((left[:i], right[:j]), (left[i + length :], right[j + length :]))
        regions += [(x, y) for x, y in around if length and x and y]
        possible = min(possible, matched + sum(min(len(x), len(y)) for x, y in regions))
    return 2.0 * matched / total >= threshold


def _longest_block(left: str, right: str) -> tuple[int, int, int]:
    """(i, j, k): the longest left[i:i+k] == right[j:j+k], the first in left, then in right, as difflib's."""
    where = length = 0
    for i in range(len(left)):
        if left[i : i + length + 1] in right and i + length < len(left):
            while i + length < len(left) and left[i : i + length + 1] in right:
                length += 1
            where = i
    return where, right.find(left[where : where + length]), length


def _lcs() -> Callable[..., int]:
    try:
        from rapidfuzz.distance import LCSseq
    except ImportError:
        raise MissingExtra("similarity of anchors", "train") from None
    return LCSseq.similarity
