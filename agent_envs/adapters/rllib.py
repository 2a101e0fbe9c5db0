"""RLlib on the hub's environments: arrays and numbered actions instead of texts.

``register("sokoban", "AgentEnv/Sokoban-v0")``, then ``PPOConfig().environment("sokoban",
env_config={"max_steps": 30})``. Needs ``pip install 'agent-envs[rllib]'``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium

from agent_envs.adapters._discrete import DiscreteActionEnv
from agent_envs.core.errors import MissingExtra
from agent_envs.registration import spec_of

try:
    from ray.tune.registry import register_env
except ImportError:
    raise MissingExtra("agent_envs.adapters.rllib", "rllib") from None


def register(name: str, env_id: str, **options: Any) -> None:
    """Make an id known to RLlib under ``name``.

    RLlib resets each environment of a runner with its own seed once, and without one from then on, so
    episodes follow the sequence that the first seed began.

    Args:
        options: ``observation`` and ``actions`` of
            :class:`~agent_envs.adapters.sb3.DiscreteActionEnv`, and the environment's own; those in RLlib's
            ``env_config`` count before them.
    """
    spec_of(env_id)  # a wrong id is told here, not in a worker
    register_env(name, partial(make, env_id, options))


def make(
    env_id: str, options: Mapping[str, Any], env_config: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """What RLlib's workers call."""
    chosen = {**options, **env_config}
    view = {key: chosen.pop(key, None) for key in ("observation", "actions")}
    return DiscreteActionEnv(gymnasium.make(spec_of(env_id), **chosen), **view)
