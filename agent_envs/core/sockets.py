"""Listening sockets of our servers, and what the URL of one looks like."""

from __future__ import annotations

import errno
import socket
from urllib.parse import SplitResult, urlsplit

from agent_envs.core.errors import OptionError

WEBSOCKET = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}  # scheme -> a WebSocket's
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that nobody else can reach."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, bound once and handed on: no port is looked up and lost (FIELD_CASES F074).

    Raises:
        OptionError: the address is taken or not this machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = " (--port 0 takes a free port)" if error.errno == errno.EADDRINUSE else ""
        raise OptionError(
            f"cannot listen at {host}:{port}: {error.strerror or error}{hint}"
        ) from error
    listener.listen(1024)
    return listener


def url_of(listener: socket.socket) -> str:
    """``http://`` and the address that it is bound to."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_parts(url: object) -> SplitResult | None:
    """The parts of a server's URL; None without one of ``WEBSOCKET``'s schemes, a host, or a usable port."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        _ = parts and parts.port  # no number, or above 65535: a ValueError
    except ValueError:
        return None
    return parts if parts and parts.scheme in WEBSOCKET and parts.hostname else None
