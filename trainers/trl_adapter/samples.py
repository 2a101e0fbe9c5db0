"""Step samples: what a rollout becomes for training, and how samples become tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agent_envs.agent import Step
from trainers.gigpo.columns import Flags, Floats, Labels


@dataclass(frozen=True)
class Samples:
    """Columns over B step samples, one per decision; a trajectory's samples stand in time order.

    ``prompt_ids`` and ``completion_ids`` are the very ids that the model saw and sampled; nothing is
    tokenised again. ``pictures`` are those of each prompt, as the model saw them. ``reward`` is float32,
    NaN in trajectories that failed (an error of the environment or of the policy). ``active`` is False for
    samples that must not move the policy: failed ones, empty replies, and whatever the collector leaves out.
    """

    prompt_ids: Sequence[Sequence[int]]
    completion_ids: Sequence[Sequence[int]]
    reward: Floats
    group: Labels
    trajectory: Labels
    anchor: np.ndarray
    format_valid: Flags
    action_valid: Flags
    cut: Flags
    active: Flags
    logprobs: Sequence[Sequence[float]] | None = None
    """The sampler's own log-probabilities of ``completion_ids``, where the back end gives them."""
    pictures: Sequence[Sequence[Any]] = ()

    def __len__(self) -> int:
        return len(self.reward)


def samples_of(steps: Sequence[Step], failed_trajectories: set[int]) -> Samples:
    """Samples of the steps that the model answered, ordered by trajectory and time."""
    rows = sorted(steps, key=lambda step: (step.trajectory, step.step))
    failed = np.array([row.trajectory in failed_trajectories for row in rows], np.bool_)
    anchors = np.empty(len(rows), object)
    anchors[:] = [row.anchor for row in rows]
    completion_ids = [row.completion.token_ids or () for row in rows]
    filled = np.array([len(ids) > 0 for ids in completion_ids], np.bool_)
    return Samples(
        prompt_ids=[row.completion.prompt_ids or () for row in rows],
        completion_ids=completion_ids,
        reward=np.where(failed, np.nan, [row.reward for row in rows]).astype(np.float32),
        group=np.array([row.group for row in rows], np.int64),
        trajectory=np.array([row.trajectory for row in rows], np.int64),
        anchor=anchors,
        format_valid=np.array([row.format_valid for row in rows], np.bool_),
        action_valid=np.array([row.action_valid for row in rows], np.bool_),
        cut=np.array([row.completion.finish_reason == "length" for row in rows], np.bool_),
        active=filled & ~failed,
        logprobs=_logprobs(rows),
        pictures=[row.completion.pictures for row in rows],
    )


def _logprobs(rows: Sequence[Step]) -> list[Sequence[float]] | None:
    if not any(row.completion.logprobs for row in rows):
        return None
    return [row.completion.logprobs or () for row in rows]


Tensors = dict[str, torch.Tensor]


def token_tensors(samples: Samples, rows: int, pad_id: int, mask: Flags) -> Tensors:
    """Padded tensors of ``rows`` >= B rows; rows beyond the samples have weight zero.

    ``prompt_ids``, ``prompt_mask`` (rows, P), padded on the left; ``completion_ids``,
    ``completion_mask`` (rows, T), padded on the right; all int64. Masks come from lengths, never from
    the pad id (which may equal the end-of-text id). ``completion_mask`` is 0 in rows where ``mask``
    (B,) is False. ``length`` (rows,) counts the reply's tokens whatever the mask. A padding row
    holds one pad token as prompt and one as completion. ``sampling_per_token_logps`` (rows, T) float32:
    only where the samples have ``logprobs``.
    """
    fill = rows - len(samples)
    prompts = [list(ids) or [pad_id] for ids in samples.prompt_ids] + [[pad_id]] * fill
    replies = [list(ids) or [pad_id] for ids in samples.completion_ids] + [[pad_id]] * fill
    lengths = torch.tensor([len(ids) for ids in samples.completion_ids] + [0] * fill)
    prompt_ids, prompt_mask = padded(prompts, pad_id, left=True)
    completion_ids, completion_mask = padded(replies, pad_id, left=False)
    weight = torch.zeros(rows, dtype=torch.long)
    weight[: len(samples)] = torch.from_numpy(mask.astype(np.int64))
    weight *= lengths > 0
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask * weight[:, None],
        "length": lengths,
    }
    if samples.logprobs is not None:
        tensors["sampling_per_token_logps"] = _aligned(samples.logprobs, completion_ids.shape)
    return tensors


def _aligned(rows: Sequence[Sequence[float]], shape: torch.Size) -> torch.Tensor:
    """(rows, T) float32; NaN where the sampler said nothing."""
    values = torch.full(shape, torch.nan)
    for i, row in enumerate(rows):
        known = [torch.nan if value is None else value for value in row]
        values[i, : len(known)] = torch.tensor(known)
    return values


def padded(
    rows: Sequence[Sequence[int]], fill: int, left: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, mask) of rows of unequal length, both int64."""
    width = max((len(row) for row in rows), default=1)
    values = torch.full((len(rows), width), fill)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        values[i, place] = torch.tensor(row)
        mask[i, place] = 1
    return values, mask


def to_device(tensors: Mapping[str, torch.Tensor], device: Any) -> Tensors:
    """The tensors on ``device``."""
    return {
        name: value.to(device) if torch.is_tensor(value) else value
        for name, value in tensors.items()
    }


Reduce = Callable[[Floats], Floats]
"""Sums an array over all processes; the identity where there is only one."""


def alone(values: Floats) -> Floats:
    """:data:`Reduce` of a single process."""
    return values
