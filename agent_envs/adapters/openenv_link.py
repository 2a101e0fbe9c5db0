"""The connection to an OpenEnv server: questions over HTTP, one session over a WebSocket."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlunsplit

from agent_envs.core.errors import (
    MissingExtra,
    OptionError,
    ServerError,
    ServerUnreachable,
    seconds,
)
from agent_envs.core.http import direct_opener
from agent_envs.core.sockets import WEBSOCKET, server_parts

try:
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.sync.client import ClientConnection, connect
except ImportError as _error:
    raise MissingExtra("agent_envs.adapters.openenv", "openenv") from _error

_MAX_MESSAGE = 100 << 20  # bytes, as OpenEnv's client takes
_ANSWERS = {"reset": "observation", "step": "observation", "state": "state"}
_NOT_OFFERED = (404, 405, 501)
_OPENER = direct_opener(proxies=False)


class Server:
    """An OpenEnv server: HTTP questions, and one session that opens when it is first needed."""

    def __init__(self, base_url: str, token: str | None, timeout: float) -> None:
        parts = server_parts(base_url)
        if parts is None:
            raise OptionError(
                f"an OpenEnv server's URL looks like http://127.0.0.1:8000/envs/Sokoban-v0, got {base_url!r}"
            )
        self.url, self._timeout = base_url.rstrip("/"), seconds("timeout", timeout)
        self._parts = parts._replace(path=parts.path.rstrip("/"))
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._socket: ClientConnection | None = None

    # -- over HTTP -----------------------------------------------------------------------------

    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of actions; empty where the server has none."""
        found = self._http("/schema")
        action = found.get("action") if isinstance(found, dict) else None
        return action if isinstance(action, dict) else {}

    def num_tasks(self, split: str) -> int | None:
        """How many tasks a split has; None where the server does not say."""
        names = self._http("/list_environments")
        if not isinstance(names, list) or not names:
            return None
        found = self._http(f"/{names[0]}/num_tasks", {"split": split})
        number = found.get("num_tasks") if isinstance(found, dict) else None
        return number if type(number) is int else None

    def _http(self, path: str, body: Any = None) -> Any:
        """The JSON value at ``path``; None where it is not offered."""
        scheme = self._parts.scheme.replace("ws", "http")
        url = urlunsplit((scheme, self._parts.netloc, self._parts.path + path, "", ""))
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - checked
        try:
            with _OPENER.open(request, timeout=self._timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in _NOT_OFFERED:
                return None
            raise self._refused(error.code, error.read(300)) from error
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from error

    # -- over the socket -----------------------------------------------------------------------

    def reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode; over a new connection where the last one was closed meanwhile."""
        if self._socket is not None:
            try:
                return self.ask("reset", data)
            except ServerUnreachable:
                pass
        self._connect()
        return self.ask("reset", data)

    def ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's ``data``.

        Raises:
            ServerUnreachable: the connection is lost, and the episode with it.
            ServerError: an error frame; ``code`` is OpenEnv's.
        """
        if self._socket is None:
            raise ServerUnreachable(f"{self.url}: the session is closed; reset begins another")
        try:
            with suppress(ConnectionClosed):  # a server that is full says so before it closes
                self._socket.send(json.dumps({"type": kind, "data": dict(data)}))
            answer = json.loads(self._socket.recv(timeout=self._timeout))
        except TimeoutError:
            self._drop()
            raise ServerUnreachable(f"{self.url}: no answer within {self._timeout:g} s") from None
        except (OSError, WebSocketException, ValueError) as error:
            self._drop()
            raise ServerUnreachable(f"{self.url}: connection lost ({error})") from error
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            self._drop()
            raise ServerError(f"{self.url}: the answer is no OpenEnv frame")
        if answer.get("type") == "error":
            raise ServerError(f"{self.url}: {found.get('message')}", str(found.get("code")))
        if answer.get("type") != _ANSWERS[kind]:
            self._drop()
            raise ServerError(f"{self.url}: answered {kind} by {answer.get('type')!r:.80}")
        return found

    def _connect(self) -> None:
        scheme = WEBSOCKET[self._parts.scheme]
        address = urlunsplit((scheme, self._parts.netloc, self._parts.path + "/ws", "", ""))
        try:
            link = connect(
                address, additional_headers=self._headers, compression=None, proxy=None,
                open_timeout=self._timeout, close_timeout=1, max_size=_MAX_MESSAGE,
            )  # fmt: skip
            self._socket = link.__enter__()  # close() and _drop() are its end
        except InvalidStatus as error:
            raise self._refused(error.response.status_code, error.response.body or b"") from error
        except (OSError, WebSocketException, EOFError) as error:
            raise self._unreachable(error) from error

    def _refused(self, status: int, body: bytes | bytearray) -> ServerError:
        why = bytes(body).decode("utf-8", "replace")
        return ServerError(f"{self.url} refuses this client ({status}): {why:.300}", str(status))

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        port = f" --port {self._parts.port}" if self._parts.port else ""
        return ServerUnreachable(
            f"no OpenEnv server answers at {self.url} ({type(error).__name__}: {error}); start one there: "
            f"agent-envs serve{port}, or the environment's own server"
        )

    def _drop(self) -> None:
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.close_socket()

    def close(self) -> None:
        """End the session in good order."""
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.send('{"type": "close"}')
                link.close()
