"""Who may come in: the token and the origin are checked before anything else runs."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from agent_envs.core.sockets import LOOPBACK
from agent_envs_server.counters import Counters
from agent_envs_server.settings import Settings

OPEN_PATHS = ("/health",)  # liveness probes carry no token, and learn nothing
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Gate:
    """ASGI middleware that refuses wrong tokens (401) and foreign origins (403).

    A token comes as ``Authorization: Bearer TOKEN``, or as a path prefix ``/t/TOKEN`` from clients
    that cannot set headers; the prefix is cut off before routing. Without a token, only requests to
    this machine by a name of its own are served: a page of another site that points its name at
    127.0.0.1 is not.
    """

    def __init__(self, app: App, settings: Settings, counters: Counters) -> None:
        self._app, self._counters = app, counters
        self._token = settings.token

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given = self._given_token(scope, headers)
        status, why = self._verdict(scope["path"], headers, given)
        if status:
            self._counters.add("refused_total")
            await _deny(scope, receive, send, status, why)
            return
        await self._app(scope, receive, send)

    def _given_token(self, scope: Scope, headers: dict[bytes, str]) -> str:
        path: str = scope["path"]
        if path.startswith("/t/"):
            token, slash, rest = path[3:].partition("/")
            scope["path"] = slash + rest
            scope["raw_path"] = scope["path"].encode()
            return token
        kind, _, token = headers.get(b"authorization", "").partition(" ")
        return token if kind.lower() == "bearer" else ""

    def _verdict(self, path: str, headers: dict[bytes, str], given: str) -> tuple[int, str]:
        host = _hostname("//" + headers.get(b"host", ""))
        if self._token is None:
            if host not in LOOPBACK:
                return 403, "this server is for its own machine only: name it by 127.0.0.1"
        elif path not in OPEN_PATHS and not hmac.compare_digest(
            given.encode(), self._token.encode()
        ):
            return 401, "a token is needed: Authorization: Bearer TOKEN"
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin) != headers.get(b"host", "").lower():
            return 403, "pages of other sites may not use this server"
        return 0, ""


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _netloc(url: str) -> str:
    """``host:port`` of an origin; empty where it has none (``null``, rubbish)."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


async def _deny(scope: Scope, receive: Any, send: Any, status: int, why: str) -> None:
    response = JSONResponse({"error": why}, status_code=status)
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
