"""RLlib on the hub's environments: arrays and numbered actions instead of texts.

``register("sokoban", "AgentEnv/Sokoban-v0")``, then ``PPOConfig().environment("sokoban",
env_config={"max_steps": 30})``. Needs ``pip install 'agent-envs[rllib]'``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import FlattenObservation

from agent_envs.adapters._discrete import DiscreteActionEnv
from agent_envs.core.errors import MissingExtra, flag
from agent_envs.registration import spec_of

try:
    from ray.tune.registry import register_env
except ImportError:
    raise MissingExtra("agent_envs.adapters.rllib", "rllib") from None


logger = logging.getLogger("agent_envs.adapters.rllib")


class CutFailures(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """A step that fails ends its episode as truncated, with ``info["error"]``; a failing reset raises.

    RLlib would stop the whole runner, or throw away the episodes of all its environments.
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._last = self.env.reset(seed=seed, options=options)
        return self._last

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        try:
            result = self.env.step(action)
        except ResetNeeded:  # the caller's mistake
            raise
        except Exception as error:
            logger.exception("an environment failed; its episode is cut")
            observation, info = self._last
            told = f"{type(error).__name__}: {error}"
            return observation, 0.0, False, True, {**info, "error": told}
        self._last = result[0], result[4]
        return result


def register(name: str, env_id: str, **options: Any) -> None:
    """Make an id known to RLlib under ``name``.

    RLlib resets each environment of a runner with its own seed once, and without one from then on, so
    episodes follow the sequence that the first seed began.

    Args:
        options: ``observation`` and ``actions`` of
            :class:`~agent_envs.adapters.sb3.DiscreteActionEnv`; ``flatten=True`` for one row of numbers
            (RLlib's default networks take pictures of 42, 64 or 84 pixels, and no small planes); and the
            environment's own options. Those in RLlib's ``env_config`` count before these.
    """
    spec_of(env_id)  # a wrong id is told here, not in a worker
    register_env(name, partial(make, env_id, options))


def make(
    env_id: str, options: Mapping[str, Any], env_config: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """What RLlib's workers call."""
    chosen = {**options, **env_config}
    view = {key: chosen.pop(key, None) for key in ("observation", "actions")}
    flatten = chosen.pop("flatten", False)
    flag("flatten", flatten)
    env: gymnasium.Env[Any, Any] = DiscreteActionEnv(
        gymnasium.make(spec_of(env_id), **chosen), **view
    )
    return CutFailures(FlattenObservation(env) if flatten else env)
