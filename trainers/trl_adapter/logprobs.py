"""Log-probabilities of the reply's tokens without scoring the prompt: TRL's numbers, less work on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor


def reply_log_probs(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    keep: int,
    *,
    temperature: float,
    entropy: bool,
    entropy_gradient: bool,
    pictures: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(log pi of the last ``keep`` tokens, entropy there or None), each (B, keep) float32.

    TRL's fused head scores every position; only replies matter, and on a CPU the prompt's share of the
    vocabulary's logits is most of the work (TRL_DESIGN section 8). Where no entropy bonus is paid, the
    entropy carries no gradient. ``pictures``: further arguments of the model.
    """
    output = model(
        input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=keep + 1, **(pictures or {})
    )  # fmt: skip
    logits = output.logits[:, -keep - 1 : -1].float() / temperature
    log_probs = logits.log_softmax(-1)
    chosen = log_probs.gather(-1, input_ids[:, -keep:, None]).squeeze(-1)
    if not entropy:
        return chosen, None
    with nullcontext() if entropy_gradient else torch.no_grad():
        return chosen, -(log_probs.exp() * log_probs).sum(-1)
