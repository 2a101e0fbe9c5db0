"""Columns over step samples: checks, labels of ids, which samples can be used."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]


class NonFiniteWarning(RuntimeWarning):
    """Samples with a NaN, infinite or absurdly large number were left out."""


def floats(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None = None, ndim: int = 1
) -> Floats:
    """``values`` as floats: float32 stays float32, all else becomes float64 (None becomes NaN).

    ValueError naming the argument unless they have ``shape`` or, without one, ``ndim`` dimensions.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError
        if array.dtype != np.float32:
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        kind = getattr(values, "dtype", type(values).__name__)
        raise ValueError(
            f"{name}: expected an array of numbers, got {kind} {values!r:.80}"
        ) from None
    _check_shape(name, array.shape, shape, ndim)
    return array


def same_precision(*arrays: Floats) -> tuple[Floats, ...]:
    """All in float32 if all are float32, else all in float64."""
    kind = np.result_type(*arrays)
    return tuple(array.astype(kind, copy=False) for array in arrays)


def flags(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None = None, ndim: int = 1
) -> Flags:
    """``values`` as bools; ValueError unless they are bools, 0 or 1 and have the shape."""
    array = floats(name, values, shape, ndim)
    strange = (array != 0) & (array != 1)
    if strange.any():
        raise ValueError(f"{name}: expected only 0 and 1, got {array[strange][0]}")
    return array.astype(np.bool_)


def labels(name: str, ids: ArrayLike | Sequence[Hashable], size: int) -> Labels:
    """Ids of any hashable kind as integers, numbered by first appearance."""
    array_shape = getattr(ids, "shape", None)
    if array_shape is not None:
        _check_shape(name, tuple(array_shape), (size,))
    try:
        listed: list[Any] = ids.tolist() if hasattr(ids, "tolist") else list(ids)  # type: ignore[arg-type]
        _check_shape(name, (len(listed),), (size,))
        return number(listed)
    except TypeError as error:
        raise ValueError(f"{name}: expected one hashable id per sample: {error}") from None


def number(keys: Sequence[Hashable]) -> Labels:
    """Equal keys get equal integers, numbered by first appearance."""
    table = dict(zip(dict.fromkeys(keys), count(), strict=False))
    return np.fromiter(map(table.__getitem__, keys), np.int64, len(keys))


def pairs(first: Labels, second: Labels) -> Labels:
    """Labels of the pairs of two labels, numbered by first appearance."""
    return number((first * (second.max(initial=0) + 1) + second).tolist())


def usable_samples(*columns: ArrayLike) -> Flags:
    """True where a sample's number is usable in all columns; the rest gets advantage 0.

    Usable is finite and of a magnitude whose squares can still be summed: below 1e15 in float32 and below
    1e150 in float64. ``(~usable_samples(scores)).sum()`` counts what was left out. Rows of 2-D columns
    (samples by tokens) are usable as a whole or not at all.
    """
    good: Flags | None = None
    for values in columns:
        array = floats("columns", values, ndim=np.ndim(values))
        limit = 1e15 if array.dtype == np.float32 else 1e150
        each = np.less(np.abs(array), limit)  # False for NaN
        fine: Flags = np.asarray(each.all(axis=tuple(range(1, each.ndim))))
        good = fine if good is None else good & fine
    if good is None:
        raise ValueError("columns: expected at least one")
    return good


def warn_unusable(name: str, usable: Flags, depth: int = 1) -> None:
    """One warning with the count where samples are left out, for the caller ``depth`` frames above ours."""
    lost = int((~usable).sum())
    if lost:
        warnings.warn(
            f"{name}: {lost} of {len(usable)} samples are NaN, infinite or too large; "
            "they get advantage 0 and count in no statistics",
            NonFiniteWarning,
            stacklevel=depth + 2,
        )


def _check_shape(
    name: str, got: tuple[int, ...], expected: tuple[int, ...] | None = None, ndim: int = 1
) -> None:
    if expected is None:
        if len(got) != ndim:
            wanted = "(samples,)" if ndim == 1 else "(samples, tokens)"
            raise ValueError(f"{name}: expected shape {wanted}, got {got}")
    elif got != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {got}")
