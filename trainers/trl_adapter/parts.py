"""The adapter's modules by name, loaded when needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from agent_envs.core.errors import MissingExtra


def part(name: str) -> ModuleType:
    """``trainers.trl_adapter.NAME``.

    Raises:
        MissingExtra: a library that it needs is not installed.
    """
    try:
        return importlib.import_module(f"trainers.trl_adapter.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "trainers":
            raise
        raise MissingExtra(f"training ({error.name} is not installed)", "train") from error
