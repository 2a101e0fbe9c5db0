"""Importance correction: samples came from an engine whose probabilities differ a little from the trainer's.

vLLM computes with other kernels, and often another number format, than the model that learns. The loss of a
sample is weighted with pi_trainer / pi_engine, bounded: TRL's options ``vllm_importance_sampling_*``, whose
modes and bounds these are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agent_envs.core.errors import one_of

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def importance_ratio(
    old: Tensor, sampled: Tensor, mask: Tensor, *, mode: str, low: float | None, high: float | None
) -> Tensor:
    """Weights of tokens, (B, T), or of whole replies, (B, 1), float32.

    Args:
        old: (B, T) log-probabilities of the trainer before the update.
        sampled: (B, T) those of the engine; NaN where it gave none (weight 1).
        mask: (B, T) 1 for tokens that count.
        mode: ``token_*`` or ``sequence_*`` (product over the reply); ``*_truncate`` clamps to ``low`` and
            ``high``, ``*_mask`` leaves out what lies beyond them.
        low, high: bounds of the ratio; None for none.
    """
    one_of("importance correction", mode, MODES)
    moved = torch.where(mask.bool(), old - sampled, 0.0).nan_to_num(nan=0.0)
    level, _, bound = mode.partition("_")
    if level == "sequence":
        moved = moved.sum(-1, keepdim=True)
    ratio = moved.exp()
    if low is None and high is None:
        return ratio
    if bound == "truncate":
        return ratio.clamp(min=low, max=high)
    outside = torch.zeros_like(ratio, dtype=torch.bool)
    if low is not None:
        outside |= ratio < low
    if high is not None:
        outside |= ratio > high
    return ratio.masked_fill(outside, 0.0)
