"""``agent-envs train``: hands its arguments to the trainer, which is a package of its own."""

from __future__ import annotations

import importlib

import typer

from agent_envs.core.errors import MissingExtra

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def train(context: typer.Context) -> None:
    """Train a language model (needs the extra `train`); `agent-envs train --help` lists all fields."""
    try:
        run = importlib.import_module("trainers.trl_adapter.run")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "trainers":
            raise
        raise MissingExtra(f"training ({error.name} is not installed)", "train") from error
    raise typer.Exit(run.main(context.args))
