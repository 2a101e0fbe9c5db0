"""The seven algorithms: which advantages they use and what they set in the loss.

A preset fills in only what the user left open (None), so every number stays changeable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from agent_envs.core import OptionError
from trainers.trl_adapter.config import TrainConfig


@dataclass(frozen=True)
class Preset:
    """One algorithm.

    Args:
        estimator: name in :data:`trainers.trl_adapter.estimators.ESTIMATORS`.
        norm: scale of group advantages.
        gamma: default discount.
        loss: defaults of the loss's open fields.
        rollout: forced settings of the rollout.
        critic: a value model is trained.
        replicas: smallest sensible ``group_size``.
    """

    estimator: str
    norm: str = "mean_std"
    gamma: float = 1.0
    loss: Mapping[str, Any] = field(default_factory=dict)
    rollout: Mapping[str, Any] = field(default_factory=dict)
    critic: bool = False
    replicas: int = 2


_TOKEN_MEAN = {
    "loss_type": "dapo", "importance": "token", "clip_low": 0.2, "clip_high": 0.2
}  # fmt: skip

CISPO_CLIP = 5.0  # its upper clip is the largest ratio itself; TRL's recommendation (after ScaleRL)

PRESETS: dict[str, Preset] = {
    "gigpo": Preset("gigpo", norm="mean", gamma=0.95, loss=_TOKEN_MEAN),
    "grpo": Preset("grpo", loss={**_TOKEN_MEAN, "loss_type": "grpo"}),
    "dapo": Preset("grpo", loss={**_TOKEN_MEAN, "clip_high": 0.28}, rollout={"dynamic": True}),
    "gspo": Preset(
        "grpo",
        loss={
            "loss_type": "grpo", "importance": "sequence", "clip_low": 3e-4, "clip_high": 4e-4
        },
    ),
    "rloo": Preset("rloo", loss=_TOKEN_MEAN),
    "reinforce_pp": Preset("reinforce_pp", loss=_TOKEN_MEAN, replicas=1),
    "ppo": Preset("ppo", loss=_TOKEN_MEAN, critic=True, replicas=1),
}  # fmt: skip


def preset_of(algorithm: str) -> Preset:
    """The preset by name (``reinforce++`` works too); OptionError names the nearest valid ones."""
    name = algorithm.lower().replace("++", "_pp").replace("-", "_")
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=2, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}; " if near else ""
        raise OptionError(f"unknown algorithm {algorithm!r}; {hint}valid: {', '.join(PRESETS)}")
    return PRESETS[name]


def resolve(config: TrainConfig) -> TrainConfig:
    """The config with the algorithm's numbers where the user gave none, checked as a whole."""
    preset = preset_of(config.algorithm)
    defaults = dict(preset.loss)
    if config.loss.loss_type == "cispo":
        defaults["clip_high"] = CISPO_CLIP
    loss = replace(
        config.loss,
        **{name: value for name, value in defaults.items() if getattr(config.loss, name) is None},
    )
    advantage = replace(
        config.advantage,
        norm=config.advantage.norm or preset.norm,
        gamma=preset.gamma if config.advantage.gamma is None else config.advantage.gamma,
    )
    rollout = replace(config.rollout, **preset.rollout)
    if rollout.group_size < max(preset.replicas, 2 if rollout.dynamic else 1):
        raise OptionError(
            f"{config.algorithm} compares the episodes of a group: rollout.group_size must be at "
            f"least 2, got {rollout.group_size}"
        )
    if advantage.similarity is not None and preset.estimator != "gigpo":
        raise OptionError(f"advantage.similarity belongs to gigpo, not to {config.algorithm}")
    if advantage.kl_in_reward and preset.estimator not in ("ppo", "reinforce_pp"):
        raise OptionError(
            f"advantage.kl_in_reward works per token (ppo, reinforce_pp); for {config.algorithm} "
            "use loss.kl_coef"
        )
    if loss.importance == "sequence":
        loss = replace(loss, dual_clip=None)
    return replace(config, loss=loss, advantage=advantage, rollout=rollout)
