"""The critic's loss of PPO, as a sum over tokens that the trainer scales itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agent_envs.core import OptionError


class ValueLoss(NamedTuple):
    """``total``: the loss summed over the mask's tokens, with the graph; ``clipped``: tokens that the clip
    bound on, an integer. Both are scalars. The trainer divides them by the tokens of the whole mini-batch
    over all ranks, so a micro-batch weighs as much as it has tokens and an empty one nothing.
    """

    total: Tensor
    clipped: Tensor


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float | None = 0.5,
) -> ValueLoss:
    """Sum over the mask of max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2); None: (V - R)^2.

    The value's counterpart of PPO's clipped ratio: Schulman et al. 2017 (arXiv:1707.06347) in the form of
    their baselines code. Without its factor 1/2, as in the seed system: the critic has an optimizer of its
    own, so its learning rates and gradient clipping carry over only with the seed's scale.

    All tensors have one shape, (samples, tokens); ``mask`` is bool or 0/1. ``old_values`` and ``returns``
    are constants: no gradient flows into them. Computed in float32, or float64 where ``values`` are.
    Numbers outside the mask, NaN included, change neither loss nor gradient; an empty mask gives 0 and
    gradient 0. A non-finite number inside it is the caller's to find. ValueError: another shape, a mask
    with other numbers; OptionError: a clip that is not above 0.
    """
    if clip is not None and not clip > 0:
        raise OptionError(f"clip: expected a number above 0 or None, got {clip!r}")
    for name, tensor in (("old_values", old_values), ("returns", returns), ("mask", mask)):
        if tensor.shape != values.shape:
            expected, got = tuple(values.shape), tuple(tensor.shape)
            raise ValueError(f"{name}: expected the shape of values, {expected}, got {got}")
    inside = mask.bool()
    if not torch.equal(inside.to(mask.dtype), mask):
        raise ValueError("mask: expected only 0 and 1")
    dtype = torch.promote_types(values.dtype, torch.float32)
    value = values[inside].to(dtype)
    old, target = old_values.detach()[inside].to(dtype), returns.detach()[inside].to(dtype)
    plain = (value - target) ** 2
    if clip is None:
        return ValueLoss(plain.sum(), torch.zeros((), dtype=torch.long, device=values.device))
    clipped = (value.clamp(old - clip, old + clip) - target) ** 2
    return ValueLoss(torch.max(plain, clipped).sum(), (clipped > plain).sum())
