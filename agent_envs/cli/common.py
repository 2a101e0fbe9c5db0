"""What the commands share: options, policies by name, progress, output."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_envs.agent.openai import OpenAIChatPolicy
from agent_envs.agent.policies import ExpertPolicy, RandomPolicy
from agent_envs.core.errors import OptionError
from agent_envs.registration import env_class, registered_ids

out = Console()
err = Console(stderr=True)

EnvId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Environment id, such as AgentEnv/ALFWorld-v0; your own as module:ID, where importing "
        "the module registers it.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Import this first: what registers the file's environment. Repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Split = Annotated[str | None, typer.Option(help="Split of tasks; default the environment's.")]
Difficulty = Annotated[str | None, typer.Option(help="Difficulty of generated tasks.")]
DataDir = Annotated[
    str | None, typer.Option(help='Benchmark data: a folder, or "imported". Default: embedded.')
]
MaxSteps = Annotated[int | None, typer.Option(help="Steps after which an episode is truncated.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help="Any option of the environment; VALUE is JSON or text. Repeatable.",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        help="inline (this process), process (worker processes), ray, or an env server's URL."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same run.")]
POLICY_HELP = (
    "expert, random, or openai:MODEL (with OPENAI_BASE_URL and OPENAI_API_KEY). Repeatable."
)
Policies = Annotated[list[str], typer.Option("--policy", "-p", help=POLICY_HELP)]


def full_id(name: str) -> str:
    """``ALFWorld-v0`` and ``ALFWorld`` are short for ``AgentEnv/ALFWorld-v0``."""
    module, colon, own = name.rpartition(":")
    if colon:
        import_modules([module])
        name = own
    for candidate in (name, f"AgentEnv/{name}", f"AgentEnv/{name}-v0"):
        if candidate in registered_ids():
            return candidate
    raise OptionError(
        f"unknown environment {name!r}; known: {', '.join(registered_ids())}; your own: "
        "module:ID, where importing the module registers it"
    )


def import_modules(names: list[str] | None) -> None:
    """Import what registers environments; OptionError where there is no such module."""
    for name in names or ():
        try:
            importlib.import_module(name)
        except ImportError as error:
            top = Path(name.partition(".")[0])
            here = top.is_dir() or top.with_suffix(".py").is_file()
            hint = "; it lies in this folder: set PYTHONPATH=. or say python -m agent_envs"
            raise OptionError(f"cannot import {name!r} ({error}){hint if here else ''}") from error


def read_options(
    env_id: str,
    split: str | None,
    difficulty: str | None,
    data_dir: str | None,
    max_steps: int | None,
    options: list[str] | None,
) -> dict[str, Any]:
    """The environment's options from the command line; what was not given is left out."""
    named = {
        "split": split, "difficulty": difficulty, "data_dir": data_dir, "max_steps": max_steps
    }  # fmt: skip
    found = {key: value for key, value in named.items() if value is not None}
    for text in options or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option needs KEY=VALUE, got {text!r}")
        if key in found:
            raise OptionError(f"option {key!r} is given twice")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    if not found:
        return found
    try:
        valid = env_class(env_id).option_names()
    except KeyError as error:
        raise OptionError(f"options of {env_id} cannot be looked up: {error.args[0]}") from error
    for key in found:
        if key not in valid:
            raise OptionError(f"{env_id} has no option {key!r}; valid: {', '.join(valid)}")
    return found


POLICIES: dict[str, Callable[[str, int], Any]] = {
    "expert": lambda argument, seed: ExpertPolicy(),
    "random": lambda argument, seed: RandomPolicy(seed),
    "openai": lambda argument, seed: OpenAIChatPolicy(argument or None),
}


def make_policy(name: str, seed: int, env_id: str) -> Any:
    """A policy by its command-line name."""
    kind, _, argument = name.partition(":")
    if kind not in POLICIES:
        raise OptionError(f"unknown policy {name!r}; valid: expert, random, openai:MODEL")
    if kind == "expert" and not env_class(env_id).profile.has_expert:
        raise OptionError(f"{env_id} has no scripted expert")
    return POLICIES[kind](argument, seed)


@contextmanager
def progress_bar(
    label: str, total: int | None, quiet: bool = False
) -> Iterator[Callable[..., None]]:
    """A live bar on standard error; yields ``update(done, total, note="")``."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    progress = Progress(*columns, console=err, disable=quiet)
    task = progress.add_task(label, total=total, note="")

    def update(done: int, total: int | None = total, note: str = "") -> None:
        progress.start()  # not before something moves: an early error leaves no dead bar behind
        progress.update(task, completed=done, total=total, note=note)

    try:
        yield update
    finally:
        if progress.live.is_started:
            progress.stop()


def started(url: str, what: str, as_json: bool) -> None:
    """Say that a server answers: to people, or as one JSON line to whoever started it and waits."""
    if as_json:
        typer.echo(
            json.dumps({"url": url, "port": int(url.rpartition(":")[2]), "pid": os.getpid()})
        )
    else:
        err.print(f"{what} at {url}; Ctrl-C ends it", highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output, without colours or wrapping."""
    typer.echo(json.dumps(value, indent=2, default=str))
