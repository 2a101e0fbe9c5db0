"""``agent-envs``: look at environments, play them, roll policies out, evaluate, replay."""

from __future__ import annotations

import os
import sys

import gymnasium
import typer

import agent_envs
from agent_envs.cli import data, doctor, render, retriever, runs, serve, show, train
from agent_envs.core.errors import AgentEnvError
from agent_envs.group.process import WorkerDied

app = typer.Typer(
    name="agent-envs",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Environments for training LLM and VLM agents.\n\n"
        "Start with `agent-envs list`, look at one with `agent-envs info ALFWorld`, play it "
        "with `agent-envs play ALFWorld`, then compare policies with "
        "`agent-envs rollout ALFWorld -p expert -p random`."
    ),
)

app.command("list")(show.list_envs)
app.command("info", epilog="Example: `agent-envs info ALFWorld`")(show.info)
app.command("play", epilog="Example: `agent-envs play ALFWorld --difficulty toy`")(show.play)
app.command(
    "rollout",
    epilog="Example: `agent-envs rollout ALFWorld -p expert -p random --out runs/alfworld.jsonl`",
)(runs.rollout)
app.command("eval", epilog="Example: `agent-envs eval ALFWorld -p random --split valid_unseen`")(
    runs.evaluate
)
app.command("replay", epilog="Example: `agent-envs replay runs/alfworld.jsonl`")(runs.replay)
app.command("render", epilog="Example: `agent-envs render Sokoban start.png`")(render.render)
app.command("bench", epilog="Example: `agent-envs bench NumberLine`")(runs.bench)
app.command("doctor")(doctor.doctor)
app.command("serve", epilog="Example: `agent-envs serve --envs ALFWorld,NumberLine --port 8000`")(
    serve.serve
)
app.command("train", context_settings=train.SETTINGS, add_help_option=False)(train.train)
app.add_typer(data.app, name="data")
app.add_typer(retriever.app, name="retriever")


def _version(value: bool) -> None:
    if value:
        typer.echo(agent_envs.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Entry point: an error is one line and exit code 2 (a traceback with AGENT_ENVS_DEBUG=1)."""
    try:
        app()
    except (AgentEnvError, gymnasium.error.Error, OSError) as error:
        _fail(str(error), error)
    except WorkerDied as death:
        _fail(f"a worker died at its start: {death}", death)
    except (ValueError, TypeError, ArithmeticError) as error:
        _fail(f"{type(error).__name__}: {error} (AGENT_ENVS_DEBUG=1 shows where)", error)


def _fail(message: str, error: Exception) -> None:
    if os.environ.get("AGENT_ENVS_DEBUG"):
        raise error
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
