"""One connection to an env server: connects, asks, and tells apart what can go wrong."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from agent_envs.core.errors import (
    MissingExtra,
    OptionError,
    ServerError,
    ServerUnreachable,
    StateError,
    StateNotPortable,
)
from agent_envs.core.sockets import LOOPBACK, WEBSOCKET, server_parts
from agent_envs.group.wire import PATH, PROTOCOL_VERSION, WireError, pack, unpack

try:
    from websockets.exceptions import (
        ConnectionClosed,
        InvalidHandshake,
        InvalidStatus,
        WebSocketException,
    )
    from websockets.sync.client import ClientConnection, connect
except ImportError as _error:
    raise MissingExtra("the env server's client", "server") from _error

_RAISED: dict[str, type[Exception]] = {  # a code's exception, where it is not ServerError
    "STATE_ERROR": StateError,
    "STATE_NOT_PORTABLE": StateNotPortable,
    "OPTION_ERROR": OptionError,
    "UNKNOWN_ENV": OptionError,
    "VALIDATION_ERROR": ValueError,
}
_TOO_LARGE, _FULL = 1009, 1013  # close codes


class LinkLost(Exception):
    """The connection is gone; whether the last request was carried out is unknown."""


class MessageTooLarge(LinkLost):
    """The server closed the connection because a message was larger than it takes."""


class Full(LinkLost):
    """The server closed the connection because all its sessions are taken."""


class NoAnswer(Exception):
    """The server did not answer in time; the connection is given up."""


class SlowReplica(Exception):
    """The server gave a replica up that took too long, and the session with it."""

    def __init__(self, message: str, index: int | None) -> None:
        super().__init__(message)
        self.index = index


class Link:
    """A connection that holds one session.

    Args:
        url: ``http://``, ``https://``, ``ws://`` or ``wss://``, with or without a path prefix.
        token: sent as ``Authorization: Bearer``.
        opening: fields of the ``open`` request.
        timeout: seconds for one answer.
    """

    def __init__(self, url: str, token: str | None, opening: Mapping[str, Any], timeout: float):
        self.url = url
        self._address, self._token = socket_url(url), token
        self._opening, self._timeout = opening, timeout
        self._ids = itertools.count(1)
        self._waiting = 0
        self._socket: ClientConnection | None = None

    @property
    def up(self) -> bool:
        return self._socket is not None

    def connect(self, timeout: float) -> dict[str, Any]:
        """Connect, say hello, open the environment; returns the answer to ``open``.

        Raises:
            ServerUnreachable: nothing answers, or what does is no env server.
            ServerError, OptionError: the server refuses this client, environment or option.
        """
        self.drop()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection = connect(
                self._address,
                additional_headers=headers,
                compression=None,
                open_timeout=timeout,
                close_timeout=1,
                max_size=None,
                proxy=None,
            )
            self._socket = connection.__enter__()  # close() and drop() are its end
        except InvalidStatus as error:
            self._refused(error)
        except (OSError, InvalidHandshake, WebSocketException, EOFError) as error:
            raise self._unreachable(f"{type(error).__name__}: {error}") from error
        try:
            self.ask("hello", version=PROTOCOL_VERSION)
            return self.ask("open", **self._opening)
        except Full as error:
            raise ServerError(str(error), "CAPACITY_REACHED") from error
        except (LinkLost, NoAnswer) as error:
            self.drop()
            raise self._unreachable(str(error)) from error
        except Exception:
            self.drop()
            raise

    def _refused(self, error: InvalidStatus) -> None:
        status = error.response.status_code
        if status in (401, 403):
            body = (error.response.body or b"").decode("utf-8", "replace")
            raise ServerError(
                f"{self.url} refuses this client ({status}): {body:.300}", str(status)
            )
        raise self._unreachable(f"HTTP status {status}: no env server at this path") from error

    def _unreachable(self, why: str) -> ServerUnreachable:
        parts = urlsplit(self.url)
        start = "agent-envs serve" + (
            "" if parts.hostname in (*LOOPBACK, None) else
            f" --host {parts.hostname} --token ..."
        ) + (f" --port {parts.port}" if parts.port else "")  # fmt: skip
        return ServerUnreachable(
            f"no env server answers at {self.url} ({why}); start one there: {start}"
        )

    # -- requests ------------------------------------------------------------------------------

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.send(kind, **fields)
        return self.receive()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a request; its answer is fetched by :meth:`receive`.

        Raises:
            LinkLost: there is no connection (any more).
            WireError: a field cannot be sent.
        """
        self._waiting = next(self._ids)
        data = pack({"type": kind, "id": self._waiting, **fields})
        if self._socket is None:
            raise LinkLost("not connected")
        try:
            self._socket.send(data)
        except (ConnectionClosed, OSError) as error:
            raise self._lost(error) from error

    def receive(self) -> dict[str, Any]:
        """The answer to the last request.

        Raises:
            LinkLost, MessageTooLarge, NoAnswer, SlowReplica: the connection is gone.
            ServerError and the exceptions of ``_RAISED``: the server refused the request.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._next(deadline)
            if answer.get("type") == "error" and answer.get("id") in (self._waiting, None):
                self._raise(answer)
            if answer.get("id") == self._waiting:
                return answer

    def _next(self, deadline: float) -> dict[str, Any]:
        if self._socket is None:
            raise LinkLost("not connected")
        try:
            data = self._socket.recv(timeout=max(deadline - time.monotonic(), 0))
            answer = unpack(data) if isinstance(data, bytes) else None
        except TimeoutError:
            self.drop()
            raise NoAnswer(f"{self.url}: no answer within {self._timeout:g} s") from None
        except (ConnectionClosed, OSError, WireError) as error:
            raise self._lost(error) from error
        if not isinstance(answer, dict):
            raise self._lost(WireError("the answer is no map"))
        return answer

    def _raise(self, answer: Mapping[str, Any]) -> None:
        code, message = str(answer.get("code")), f"{self.url}: {answer.get('message')}"
        if code == "TIMEOUT":
            self.drop()
            raise SlowReplica(message, answer.get("index"))
        if code == "LIMIT_REACHED":
            self.drop()
            raise LinkLost(message)
        if code in _RAISED:
            raise _RAISED[code](message)
        raise ServerError(message, code)

    def _lost(self, error: Exception) -> LinkLost:
        self.drop()
        received = getattr(error, "rcvd", None)
        code = None if received is None else received.code
        if code == _TOO_LARGE:
            return MessageTooLarge(
                f"{self.url}: a message is larger than the server takes (serve --max-message)"
            )
        if code == _FULL:  # the error frame before it is lost where our request came too late
            return Full(f"{self.url}: all sessions of the server are taken (serve --max-sessions)")
        return LinkLost(f"{self.url}: connection lost ({error})")

    def drop(self) -> None:
        """Forget the connection without waiting for the other side."""
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.close_socket()

    def close(self) -> None:
        """End the session in good order."""
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.close()


def socket_url(url: str) -> str:
    """The address of a server's group socket.

    Raises:
        OptionError: the text is no URL of a server.
    """
    parts = server_parts(url)
    if parts is None:
        raise OptionError(f"a server's URL looks like http://127.0.0.1:8000, got {url!r}")
    path = parts.path.rstrip("/")
    return (
        f"{WEBSOCKET[parts.scheme]}://{parts.netloc}{path if path.endswith(PATH) else path + PATH}"
    )
