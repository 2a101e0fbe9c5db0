"""Micro-batches: bounded memory, and a gradient that does not depend on how the rows are cut.

The factors below make the sum over micro-batches and processes equal to one big batch, for each of
TRL's loss types (measured in ``tests/test_trl_gradients.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from trainers.trl_adapter.vision import FIELDS, pictures_of_rows

_ROWS, _TOKENS, _ONE = "rows", "tokens", "one"
SCALES = {  # loss type of TRL -> what its mean per micro-batch runs over
    "grpo": _ROWS, "sapo": _ROWS, "luspo": _ROWS, "dr_grpo": _ROWS,
    "bnpo": _TOKENS,
    "dapo": _ONE, "cispo": _ONE, "vespo": _ONE,
}  # fmt: skip


class Totals(NamedTuple):
    """Rows and tokens that count in a mini-batch: sums over processes, divided by their number."""

    rows: float
    tokens: float


def scale_of(loss_type: str, rows: int, tokens: int, totals: Totals) -> float:
    """The factor of a micro-batch's loss.

    Args:
        rows: of the micro-batch, padding included, as TRL's mean over rows counts them.
        tokens: unmasked ones of the micro-batch.
        totals: of the mini-batch.
    """
    kind = SCALES[loss_type]
    if kind == _ONE:
        return 1.0
    part, whole = (rows, totals.rows) if kind == _ROWS else (tokens, totals.tokens)
    return part / whole if whole else 0.0


def widths(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Tokens of each row: prompt and reply, without padding. (B,)"""
    return batch["prompt_mask"].sum(1) + batch["length"].clamp(min=1)


def plan(
    width: torch.Tensor, budget: int, widest: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor]:
    """Row indices of each micro-batch: rows sorted by width, as many as fit ``budget`` tokens padded.

    All processes have equally many rows. ``widest`` is the element-wise maximum over processes, so
    all make the same cuts, as collective calls inside the loss need.
    """
    order = torch.argsort(width, descending=True, stable=True)
    tops = widest(width[order]).tolist()
    parts, start = [], 0
    while start < len(tops):
        rows = max(1, budget // max(int(tops[start]), 1))
        parts.append(order[start : start + rows])
        start += rows
    return parts


def take(batch: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """The rows of a mini-batch, without columns that are padding in all of them."""
    size = len(batch["prompt_mask"])
    part = {
        name: value[rows]
        if torch.is_tensor(value) and value.dim() and len(value) == size
        else value
        for name, value in batch.items()
        if name not in FIELDS
    }
    part.update(pictures_of_rows(batch, rows))
    prompt = int(part["prompt_mask"].sum(1).max())
    reply = max(1, int(part["length"].max()))
    columns = batch["completion_mask"].shape[1]
    for name, value in part.items():
        if name.startswith("prompt_"):
            part[name] = value[:, value.shape[1] - prompt :]
        elif torch.is_tensor(value) and value.dim() == 2 and value.shape[1] == columns:
            part[name] = value[:, :reply]
    if "pixel_values" in part:
        begin = batch["prompt_mask"].shape[1]
        kinds = batch["mm_token_type_ids"][rows]
        part["mm_token_type_ids"] = kinds[:, begin - prompt : begin + reply]
    return part
