"""``serve``: the env server."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from agent_envs.cli.common import Json, full_id, started
from agent_envs.core.errors import OptionError

_ENVS_HELP = "Ids to serve, separated by commas; default all. module:id imports the module first."


def serve(
    envs: Annotated[str, typer.Option(help=_ENVS_HELP)] = "",
    default_env: Annotated[
        str, typer.Option(help="Id that OpenEnv clients get at the bare URL; default none.")
    ] = "",
    host: Annotated[
        str, typer.Option(help="Address; any but this machine's own needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AGENT_ENVS_SERVER_TOKEN",
            help="Demand this token. Better given by the environment variable: command lines are public.",
        ),
    ] = None,
    state_key: Annotated[
        str | None,
        typer.Option(
            envvar="AGENT_ENVS_STATE_KEY",
            help="What states are signed with (hex); servers with the same key restore each other's.",
        ),
    ] = None,
    allow_paths: Annotated[
        bool, typer.Option("--allow-paths", help="Let clients name files and URLs in options.")
    ] = False,
    max_sessions: Annotated[int, typer.Option(help="Sessions at once, over all workers.")] = 1024,
    max_replicas: Annotated[int, typer.Option(help="Replicas in one session.")] = 4096,
    max_message: Annotated[int, typer.Option(help="Bytes of a message.")] = 64 << 20,
    max_steps: Annotated[int, typer.Option(help="Replica steps in one session.")] = 10_000_000,
    idle_timeout: Annotated[
        float, typer.Option(help="Seconds without a request until a session is closed.")
    ] = 900.0,
    step_timeout: Annotated[
        float, typer.Option(help="Seconds that one replica may take for one step.")
    ] = 60.0,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    as_json: Json = False,
) -> None:
    """Serve groups of environments over a socket (needs the extra `server`)."""
    from agent_envs_server.settings import Limits, Settings
    from agent_envs_server.supervisor import serve as run

    ids, modules = _read_envs(envs)
    settings = Settings(
        envs=ids,
        default_env=full_id(default_env) if default_env else None,
        modules=modules,
        host=host,
        port=port,
        workers=workers,
        token=token or None,
        allow_paths=allow_paths,
        limits=Limits(
            max_sessions, max_replicas, max_message, max_steps, idle_timeout, step_timeout
        ),
        **({"state_key": state_key} if state_key else {}),
    )

    run(
        settings, ready=lambda url: started(url, "env server", as_json), log_level=log_level.upper()
    )


def _read_envs(names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Full ids, and the modules that register them."""
    ids, modules = [], []
    for name in filter(None, map(str.strip, names.split(","))):
        module, colon, env_id = name.rpartition(":")
        if colon:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise OptionError(f"--envs {name}: cannot import {module}: {error}") from error
            modules.append(module)
        ids.append(full_id(env_id))
    return tuple(ids), tuple(dict.fromkeys(modules))
