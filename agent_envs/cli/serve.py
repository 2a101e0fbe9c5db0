"""``serve``: the env server."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_envs.cli.common import Json, full_id, started
from agent_envs.core.errors import one_of

Envs = Annotated[
    str,
    typer.Option(
        help="Ids to serve, separated by commas; default all. module:id imports the module first."
    ),
]
DefaultEnv = Annotated[
    str, typer.Option(help="Id that OpenEnv clients get at the bare URL; default none.")
]
Host = Annotated[str, typer.Option(help="Address; any but this machine's own needs --token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that share the port.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="AGENT_ENVS_SERVER_TOKEN",
        help="Demand this token. Better given by the environment variable: command lines are public.",
    ),
]
StateKey = Annotated[
    str | None,
    typer.Option(
        envvar="AGENT_ENVS_STATE_KEY",
        help="What states are signed with (hex); servers with the same key restore each other's.",
    ),
]
AllowPaths = Annotated[
    bool, typer.Option("--allow-paths", help="Let clients name files and URLs in options.")
]
MaxSessions = Annotated[int, typer.Option(help="Sessions at once, over all workers.")]
MaxReplicas = Annotated[int, typer.Option(help="Replicas in one session.")]
MaxMessage = Annotated[int, typer.Option(help="Bytes of a message.")]
MaxSteps = Annotated[int, typer.Option(help="Replica steps in one session.")]
IdleTimeout = Annotated[
    float, typer.Option(help="Seconds without a request until a session is closed.")
]
StepTimeout = Annotated[float, typer.Option(help="Seconds that one replica may take for one step.")]
LogLevel = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]


def serve(
    envs: Envs = "",
    default_env: DefaultEnv = "",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 1,
    token: Token = None,
    state_key: StateKey = None,
    allow_paths: AllowPaths = False,
    max_sessions: MaxSessions = 1024,
    max_replicas: MaxReplicas = 4096,
    max_message: MaxMessage = 64 << 20,
    max_steps: MaxSteps = 10_000_000,
    idle_timeout: IdleTimeout = 900.0,
    step_timeout: StepTimeout = 60.0,
    log_level: LogLevel = "INFO",
    as_json: Json = False,
) -> None:
    """Serve groups of environments over a socket (needs the extra `server`)."""
    one_of("log level", log_level.upper(), ("DEBUG", "INFO", "WARNING", "ERROR"))
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
    given = [name for name in map(str.strip, names.split(",")) if name]
    modules = [name.rpartition(":")[0] for name in given if ":" in name]
    return tuple(map(full_id, given)), tuple(dict.fromkeys(modules))
