"""Executors of agents' code, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_envs.core.errors import MissingExtra, made, one_of
from agent_envs.envs.appworld.execution.inprocess import InProcessExecutor
from agent_envs.envs.appworld.execution.process import ProcessExecutor
from agent_envs.envs.appworld.execution.protocol import (
    Call,
    Execution,
    Executor,
    ExecutorError,
    Limits,
    Session,
)


def _monty(**options: Any) -> Executor:
    try:
        from agent_envs.envs.appworld.execution.monty import MontyExecutor
    except ModuleNotFoundError as error:
        raise MissingExtra("the monty executor", "appworld-monty") from error
    return MontyExecutor(**options)


EXECUTORS: dict[str, Callable[..., Executor]] = {
    "process": ProcessExecutor,
    "monty": _monty,
    "inprocess": InProcessExecutor,
}
"""``process``: the default; ``monty``: portable snapshots; ``inprocess``: debugging."""


def executor_of(name: str, **options: Any) -> Executor:
    """The executor called ``name``.

    Raises:
        OptionError: there is none of that name, or it does not take these options.
        MissingExtra: it needs a package that is not installed.
    """
    one_of("executor", name, EXECUTORS)
    return made(f"executor {name!r}", EXECUTORS[name], options)


__all__ = [
    "EXECUTORS",
    "Call",
    "Execution",
    "Executor",
    "ExecutorError",
    "Limits",
    "Session",
    "executor_of",
]
