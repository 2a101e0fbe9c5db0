"""``agent-envs train``: hands its arguments to the trainer, which is a package of its own."""

from __future__ import annotations

import importlib

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def train(context: typer.Context) -> None:
    """Train a language model (needs the extra `train`); `agent-envs train --help` lists all fields."""
    parts = importlib.import_module("trainers.trl_adapter.parts")  # a layer above, so by name
    raise typer.Exit(parts.part("command").main(context.args))
