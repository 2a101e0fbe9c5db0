"""Which tasks are held out."""

from __future__ import annotations

import agent_envs
from agent_envs.core import OptionError
from trainers.trl_adapter.config import EnvConfig, EvalConfig


def held_out_split(env: EnvConfig, config: EvalConfig) -> str:
    """The split to evaluate on: the one named, else the environment's first besides ``env.split``.

    Raises:
        OptionError: no such split, or an endless one without a number of episodes.
    """
    group = agent_envs.make_group(env.id, 1, 1, split=env.split, **env.options)
    try:
        splits, tasks = group.tasks.splits, group.tasks
        others = [name for name in splits if name != env.split]
        if config.split is not None and config.split not in splits:
            raise OptionError(
                f"eval.split: unknown split {config.split!r}; valid: {', '.join(splits)}"
            )
        split = config.split or (others or [env.split])[0]
        tasks.panel_size(split, config.episodes)
    finally:
        group.close()
    return split
