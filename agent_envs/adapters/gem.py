"""GEM's ``Env`` over the hub's environments, for the trainers that take it (Oat, ROLL, RL2, Tinker...).

``register("AgentEnv/Sokoban-v0")``, then ``gem.make("AgentEnv/Sokoban-v0")``. Needs
``pip install gem-llm``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from agent_envs.adapters.text_env import TextEnv, TextTurn, text_and_images
from agent_envs.agent.policies import RandomPolicy
from agent_envs.core.env import Obs
from agent_envs.core.errors import MissingExtra
from agent_envs.core.seeding import check_seed

try:
    import gem
except ImportError:
    raise MissingExtra("agent_envs.adapters.gem", "gem") from None


class GemEnv(gem.Env):
    """Observations are prompts, actions are replies.

    A prompt with pictures is ``{"problem": text, "images": [PIL images]}``, as in GEM's own visual
    environments. A failure of the environment truncates the episode; ``info["error"]`` says why.

    Args:
        env_id: a registered id, or ``"module:id"``.
        seed: of the first ``reset`` without one; ``gem.make_vec`` gives each environment another, and
            ``vec.reset(seed=[7] * 8)`` makes a group.
        options: as for :class:`~agent_envs.adapters.text_env.TextEnv`; ``conversation=True`` with GEM's
            wrappers that concatenate, which else would repeat whole prompts.
    """

    def __init__(self, env_id: str, seed: int | None = None, **options: Any) -> None:
        # not `super().reset`, here or later: it seeds the global generators
        self._made = env_id, options
        self._env = TextEnv(env_id, **options)
        self._first = None if seed is None else check_seed(seed)
        self._turn: TextTurn | None = None
        self._start: dict[str, Any] = {}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Start an episode; without a seed the next of the sequence that the last seed began."""
        if seed is None:
            seed, self._first = self._first, None
        self._start = dict(options or {})
        self._turn = self._env.reset(seed, self._start)
        return _shown(self._turn), dict(self._turn.info)

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Carry out the action in ``action``, the model's whole reply."""
        turn = self._turn = self._env.step(action)
        info = dict(turn.info) if turn.error is None else {**turn.info, "error": turn.error}
        return _shown(turn), turn.reward, turn.terminated, turn.truncated, info

    def sample_random_action(self) -> str:
        """A reply with one of the admissible actions; the same at the same step of the same start."""
        if self._turn is None or self._turn.prompt is None:
            return ""
        return RandomPolicy().act([self._turn.prompt])[0]

    def spawn(self, same_state: bool = False, **kwargs: Any) -> GemEnv:
        """Another of the kind; with ``same_state`` at the same point of the same episode."""
        env_id, options = self._made
        made = GemEnv(env_id, **{**options, **kwargs})
        if same_state and self._turn is not None:
            made.reset(self._env.seed, self._start)
            for reply in self._env.replies:  # the same replies lead to the same state
                made.step(reply)
        return made

    def close(self) -> None:
        self._env.close()


def register(env_id: str, name: str | None = None, **options: Any) -> str:
    """Make an id known to GEM; returns the name it has there (default the id itself).

    Args:
        options: see :class:`GemEnv`.
    """
    name = name or env_id
    gem.register(name, partial(GemEnv, env_id, **options))
    return name


def _shown(turn: TextTurn) -> Obs:
    """The prompt; after the end the last observation."""
    content = text_and_images(turn.messages) if turn.messages else None
    if content is None:
        return turn.observation
    if isinstance(content, str):
        return content
    return {
        "problem": "".join(part["text"] for part in content if part["type"] == "text"),
        "images": [part["image"] for part in content if part["type"] == "image"],
    }
