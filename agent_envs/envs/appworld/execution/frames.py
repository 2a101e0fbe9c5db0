"""JSON messages, one a line, over a file descriptor or socket.

Both sides treat what comes as hostile: an agent's code can write to its own process's end.
"""

from __future__ import annotations

import json
from typing import Any

MAX_FRAME = 8_000_000
"""Bytes of one message from a session's process; a longer one is a fault."""


class FrameError(Exception):
    """A message is too long or no JSON object."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def pack(message: dict[str, Any]) -> bytes:
    """One line of JSON, ASCII only. ValueError, TypeError or RecursionError where it is none."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def unpack(line: bytes) -> dict[str, Any]:
    """The message of a line.

    Raises:
        FrameError: it is no JSON object.
    """
    try:
        message = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError(f"not an object but {type(message).__name__}")
    return message


class Lines:
    """Cuts a stream of bytes into lines.

    Args:
        limit: bytes that a line may have; None for a side that is trusted.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0

    @property
    def pending(self) -> bool:
        """Something lies here that no message has taken."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next whole line without its end, or None.

        Raises:
            FrameError: the line is longer than the limit.
        """
        end = self._buffer.find(b"\n", self._searched)
        if self._limit is not None and max(end, len(self._buffer) if end < 0 else 0) > self._limit:
            raise FrameError(f"longer than {self._limit} bytes")
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line
