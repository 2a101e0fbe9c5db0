"""SkyRL-gym's ``BaseTextEnv`` over the hub's environments.

``register("AgentEnv/Sokoban-v0")`` in every process that makes environments, then ``env_class:
AgentEnv/Sokoban-v0`` in SkyRL's configuration. Needs ``pip install skyrl-gym``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_envs.adapters.text_env import TextEnv, TextTurn
from agent_envs.core.errors import MissingExtra, OptionError, positive

try:
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
except ImportError:
    raise MissingExtra("agent_envs.adapters.skyrl", "skyrl") from None

_KEYS = ("task_id", "task", "won", "score", "steps", "is_action_valid")


class SkyRLEnv(BaseTextEnv):
    """One episode; SkyRL makes a new object for each.

    The chat grows: ``init`` returns the opening, ``step`` what is new. SkyRL's messages are text, so
    environments that show pictures are refused.

    Args:
        env_config: SkyRL's configuration of this environment: more of its options.
        extras: the dataset row: ``seed`` (needed, else a group's rollouts start differently), ``task_index``,
            and SkyRL's ``max_turns``, after which the episode is cut. They may also stand in ``extra_info``.
        env_id: a registered id, or ``"module:id"``.
        options: ``memory``, ``prompt``, ``parser`` as for :class:`~agent_envs.adapters.text_env.TextEnv`,
            and the environment's own options.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
        *,
        env_id: str,
        **options: Any,
    ) -> None:
        super().__init__()
        row = dict(extras or {})
        row = {**dict(row.get("extra_info") or {}), **row}
        if row.get("seed") is None:
            raise OptionError("each row of the dataset needs a `seed`, as a column of its own")
        self._seed = int(row["seed"])
        index = row.get("task_index")
        self._start = {} if index is None else {"task_index": int(index)}
        turns = row.get("max_turns")
        self.max_turns = None if turns is None else positive("max_turns", turns)
        self._env = TextEnv(env_id, **{"conversation": True, **options, **dict(env_config or {})})
        self._metrics: dict[str, Any] = {}

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The opening: system messages of ``prompt``, then the environment's; and what it is about."""
        turn = self._env.reset(self._seed, self._start)
        self.turns = 0
        self._metrics = {"won": False, "score": 0.0, "steps": 0, "error": False}
        kept = [message for message in prompt if message["role"] == "system"]
        return [*kept, *_texts(turn)], _metadata(turn)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Carry out the action in the model's reply. ``metadata["error"]``: the environment failed."""
        turn = self._env.step(action)
        self.turns += 1
        cut = self.max_turns is not None and self.turns >= self.max_turns
        done = turn.done or cut
        metadata = _metadata(turn)
        metadata["truncated"] = turn.truncated or (cut and not turn.terminated)
        self._metrics = {
            "won": bool(metadata["won"]), "score": float(metadata["score"]),
            "steps": int(metadata["steps"]), "error": turn.error is not None,
        }  # fmt: skip
        return BaseTextEnvStepOutput(
            observations=[] if done else _texts(turn),
            reward=turn.reward,
            done=done,
            metadata=metadata,
        )

    def get_metrics(self) -> dict[str, Any]:
        return dict(self._metrics)

    def close(self) -> None:
        self._env.close()


def register(env_id: str, name: str | None = None, **options: Any) -> str:
    """Make an id known to SkyRL-gym; returns the name it has there (default the id itself).

    Args:
        options: see :class:`SkyRLEnv`.
    """
    name = name or env_id
    skyrl_gym.register(
        name, entry_point=f"{__name__}:SkyRLEnv", kwargs={"env_id": env_id, **options}
    )
    return name


def _texts(turn: TextTurn) -> list[dict[str, str]]:
    if any(not isinstance(message["content"], str) for message in turn.messages):
        raise OptionError("SkyRL-gym's messages are text: use obs_mode='text'")
    return turn.messages


def _metadata(turn: TextTurn) -> dict[str, Any]:
    known = {key: turn.info[key] for key in _KEYS if key in turn.info}
    return {
        **known,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "error": turn.error,
    }
