"""The ASGI application: the page, ``/group``, ``/envs/NAME`` for OpenEnv, ``/health``, ``/metrics``."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute

from agent_envs.group.wire import PATH
from agent_envs_server import openenv_json
from agent_envs_server.counters import Counters, new_board
from agent_envs_server.engine import Crew
from agent_envs_server.gate import Gate
from agent_envs_server.group_socket import GroupSocket
from agent_envs_server.openenv_http import Pages, mcp_refusal, mounts, no_default
from agent_envs_server.openenv_socket import OpenEnvSocket
from agent_envs_server.page import page_routes
from agent_envs_server.settings import Settings


def make_app(settings: Settings, counters: Counters) -> Any:
    """What one worker serves."""
    crew = Crew()

    async def group(websocket: Any) -> None:
        await GroupSocket(websocket, settings, counters, crew).serve()

    async def metrics(request: Any) -> Any:
        return PlainTextResponse(
            counters.prometheus(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    app = Starlette(
        routes=[
            WebSocketRoute(PATH, group),
            Route("/health", _health, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
            *page_routes(settings),
            *_openenv(settings, counters, crew),
        ]
    )
    return Gate(app, settings, counters)


def standalone(settings: Settings) -> Any:
    """The application by itself, for an ASGI server of the caller's: one process, its own counters."""
    return make_app(settings, Counters(new_board(1), 1, 0))


async def _health(request: Any) -> Any:
    return JSONResponse({"status": "healthy"})


def _openenv(settings: Settings, counters: Counters, crew: Crew) -> list[BaseRoute]:
    """A mount for each environment, and the default one at the root."""
    envs = mounts(settings.ids())

    def sockets(env_id: str | None) -> list[BaseRoute]:
        async def play(websocket: Any) -> None:
            why_not = no_default(envs)
            await OpenEnvSocket(websocket, settings, counters, crew, env_id, why_not).serve()

        return [WebSocketRoute("/ws", play), WebSocketRoute("/mcp", _no_tools)]

    found: list[BaseRoute] = []
    for name, env_id in envs.items():
        prefix = f"/envs/{name}"
        pages = Pages({name: env_id}, env_id, prefix).routes()
        health = Route("/health", _health, methods=["GET"])
        found.append(Mount(prefix, routes=[*sockets(env_id), health, *pages]))
    default = settings.default_env
    return [*found, *sockets(default), *Pages(envs, default).routes()]


async def _no_tools(websocket: Any) -> None:
    await websocket.accept()
    await websocket.send_text(openenv_json.write(mcp_refusal(None)))
    await websocket.close()
