"""TRL's own ``GRPOTrainer`` on the hub's environments, by its ``environment_factory``.

::

    GRPOTrainer(
        model=..., reward_funcs=[], train_dataset=trl_dataset(1_000),
        environment_factory=trl_environment("AgentEnv/Sokoban-v0"),
    )

The model calls a tool, ``act``; a whole episode is one row of tokens. :mod:`trainers.trl_adapter` trains on
single decisions instead, with GiGPO and with memories that keep prompts short. Needs TRL 1.16 with
transformers 5.2, and a chat template that knows tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from agent_envs.adapters.text_env import TextEnv, observation_content, text_and_images
from agent_envs.core.errors import MissingExtra, OptionError, positive
from agent_envs.core.seeding import check_seed, keyed_seed

Content = str | list[dict[str, Any]]

NOTE = "\n\nGive each action by calling the tool `act`, with the action alone as its argument."
_OVER = "The episode is over."


class HubEnvironment:
    """What TRL asks an environment for: ``reset``, ``get_reward``, and its public methods as tools.

    Args:
        env_id: a registered id, or ``"module:id"``.
        note: put behind the environment's own prompt, which asks for tags.
        options: ``prompt`` and ``parser`` as for :class:`~agent_envs.adapters.text_env.TextEnv`, and the
            environment's own options.
    """

    def __init__(self, env_id: str, note: str = NOTE, **options: Any) -> None:
        self._env = TextEnv(env_id, **{"conversation": True, "untagged": "action", **options})
        self._note = note
        self._reward, self._running = 0.0, False

    def reset(self, seed: int | None = None, task_index: int | None = None, **row: Any) -> Content:
        """Start the row's episode; returns what TRL appends to its prompt.

        Raises:
            OptionError: the row has no seed: the rollouts of a group would start differently.
            AgentEnvError: the start failed.
        """
        if seed is None:
            raise OptionError("each row of the dataset needs a `seed` (see trl_dataset)")
        options = {} if task_index is None else {"task_index": task_index}
        turn = self._env.reset(int(seed), options)
        self._reward, self._running = 0.0, True
        return _joined(text_and_images(turn.messages), self._note)

    def act(self, action: str) -> Content:
        """
        Take one action in the environment.

        Args:
            action: The action to take, written as the possible actions are.

        Returns:
            What you observe after it.
        """
        if not self._running:
            return _OVER
        # what a model puts into the call may be of any type; as text it is at worst no valid action
        turn = self._env.step(action if isinstance(action, str) else str(action))
        self._reward += turn.reward
        self._running = not turn.done
        if turn.error is not None:
            return f"The environment failed. {_OVER}"
        if turn.done:
            return _joined(observation_content(turn.observation), f"\n\n{_OVER}")
        return text_and_images(turn.messages)

    def get_reward(self) -> float:
        """The sum of the episode's rewards so far."""
        return self._reward


def trl_environment(env_id: str, **options: Any) -> Callable[[], HubEnvironment]:
    """The ``environment_factory`` of one id, or one entry of a dict of factories.

    Args:
        options: see :class:`HubEnvironment`.
    """
    return partial(HubEnvironment, env_id, **options)


def trl_dataset(n: int, seed: int = 0, columns: Mapping[str, Any] | None = None) -> Any:
    """A ``datasets.Dataset`` of ``n`` starts; each row is one group.

    Args:
        seed: of the list; the rows' ``seed`` are those of the environments' ``reset``.
        columns: the same in every row, such as ``{"environment": "sokoban"}`` for a dict of factories.
    """
    try:
        from datasets import Dataset
    except ImportError:
        raise MissingExtra("agent_envs.adapters.trl.trl_dataset", "train") from None
    root = check_seed(seed)
    return Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": ""}],  # reset brings it
                "seed": keyed_seed(root, i),
                **(columns or {}),
            }
            for i in range(positive("n", n))
        ]
    )


def _joined(content: Content, text: str) -> Content:
    if not text:
        return content
    if isinstance(content, str):
        return content + text
    return [*content, {"type": "text", "text": text}]
