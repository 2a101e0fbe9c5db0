"""The ASGI application: ``/group``, ``/health``, ``/metrics``."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

from agent_envs.group.wire import PATH
from agent_envs_server.counters import Counters
from agent_envs_server.gate import Gate
from agent_envs_server.group_socket import GroupSocket
from agent_envs_server.settings import Settings


def make_app(settings: Settings, counters: Counters) -> Any:
    """What one worker serves."""

    async def group(websocket: Any) -> None:
        await GroupSocket(websocket, settings, counters).serve()

    async def health(request: Any) -> Any:
        return JSONResponse({"status": "healthy"})

    async def metrics(request: Any) -> Any:
        return PlainTextResponse(
            counters.prometheus(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    app = Starlette(
        routes=[
            WebSocketRoute(PATH, group),
            Route("/health", health, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
        ]
    )
    return Gate(app, settings, counters)
