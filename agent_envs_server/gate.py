"""Who may come in: the token and the origin are checked before anything else runs."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket

from agent_envs.core.sockets import LOOPBACK
from agent_envs_server.counters import Counters
from agent_envs_server.page import FILES
from agent_envs_server.settings import Settings

OPEN_PATHS = ("/health", "/")  # probes carry no token and learn nothing; the page asks for it
CLOSE_TOKEN = 4401
_PATIENCE = 10.0  # seconds that a page's socket has to say the token
_NONE_GIVEN = "a token is needed: Authorization: Bearer TOKEN"
_WRONG_ONE = "this token is not the server's"
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Gate:
    """ASGI middleware that refuses wrong tokens (401) and foreign origins (403).

    A token comes as ``Authorization: Bearer TOKEN``, or as a path prefix ``/t/TOKEN`` from clients
    that cannot set headers; the prefix is cut off before routing. A WebSocket of the server's own page
    may say it in its first message, ``{"type": "auth", "data": {"token": TOKEN}}``. Without a token,
    only requests to this machine by a name of its own are served: a page of another site that points
    its name at 127.0.0.1 is not.
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
        if foreign := self._foreign(headers):
            await self._refuse(scope, receive, send, 403, foreign)
        elif self._knows_token(given) or _is_open(scope["path"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket" and b"origin" in headers and not given:
            await self._by_first_message(scope, receive, send)
        else:
            await self._refuse(scope, receive, send, 401, _WRONG_ONE if given else _NONE_GIVEN)

    def _given_token(self, scope: Scope, headers: dict[bytes, str]) -> str:
        path: str = scope["path"]
        if path.startswith("/t/"):
            token, slash, rest = path[3:].partition("/")
            scope["path"] = slash + rest
            scope["raw_path"] = scope["path"].encode()
            return token
        kind, _, token = headers.get(b"authorization", "").partition(" ")
        return token if kind.lower() == "bearer" else ""

    def _foreign(self, headers: dict[bytes, str]) -> str:
        """Why a request may not come from where it comes from; empty where it may."""
        if self._token is None and _hostname("//" + headers.get(b"host", "")) not in LOOPBACK:
            return "this server is for its own machine only: name it by 127.0.0.1"
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin) != headers.get(b"host", "").lower():
            return "pages of other sites may not use this server"
        return ""

    def _knows_token(self, given: object) -> bool:
        if self._token is None:
            return True
        said = given.encode("utf-8", "replace") if isinstance(given, str) else b""
        return hmac.compare_digest(said, self._token.encode())

    async def _by_first_message(self, scope: Scope, receive: Any, send: Any) -> None:
        """Accept, and let the app see the connection once the token was said."""
        opening = await receive()
        await send({"type": "websocket.accept"})
        try:
            said = await asyncio.wait_for(receive(), _PATIENCE)
        except TimeoutError:
            said = {}
        if not self._knows_token(_token_in(said.get("text"))):
            self._counters.add("refused_total")
            if said.get("type") != "websocket.disconnect":
                await send({"type": "websocket.close", "code": CLOSE_TOKEN, "reason": "no token"})
            return
        events = iter((opening,))

        async def go_on() -> Any:
            return next(events, None) or await receive()

        async def answer(message: Any) -> None:
            if message["type"] != "websocket.accept":  # it is already
                await send(message)

        await self._app(scope, go_on, answer)

    async def _refuse(self, scope: Scope, receive: Any, send: Any, status: int, why: str) -> None:
        self._counters.add("refused_total")
        response = JSONResponse({"error": why}, status_code=status)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(FILES + "/")


def _token_in(text: object) -> object:
    """The token of a first message; None where it is another one."""
    try:
        message = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("type") != "auth":
        return None
    data = message.get("data")
    return data.get("token") if isinstance(data, dict) else None


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
