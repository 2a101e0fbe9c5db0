"""A WebSocket client that costs little: what is measured with it is the server, not the client.

It sends whole frames, unmasked in effect (a mask of zeros), answers no pings, and reads answers that come in
one frame. With the ``websockets`` client in the same process, the client's own work made most of the p99.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from typing import Any
from urllib.parse import urlsplit

_DATA = (1, 2)  # opcodes of text and binary frames


def framed(message: str | bytes) -> bytes:
    """A message as one client frame."""
    data = message.encode() if isinstance(message, str) else message
    kind, size = (0x81 if isinstance(message, str) else 0x82), len(data)
    if size < 126:
        head = struct.pack("!BB", kind, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", kind, 0xFE, size)
    else:
        head = struct.pack("!BBQ", kind, 0xFF, size)
    return head + b"\0\0\0\0" + data


class LightClient(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._upgraded = False
        self._waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @classmethod
    async def connect(cls, url: str) -> LightClient:
        where = urlsplit(url)
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(
            cls, where.hostname or "", where.port or 80
        )
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = await client._waiting
        if b" 101 " not in head[:20]:
            raise ConnectionError(head.decode("latin-1"))
        return client

    async def ask(self, frame: bytes) -> bytes:
        """Send a frame (:func:`framed`); the answer's payload."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        answer: bytes = await self._waiting
        return answer

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self._waiting.done():
            self._waiting.set_exception(error or ConnectionError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._upgraded = True
            self._take(0, end + 4)
        while self._frame():
            pass

    def _frame(self) -> bool:
        """Read a whole frame off the buffer; False where there is none yet."""
        buffer = self._buffer
        if len(buffer) < 10 and (len(buffer) < 2 or len(buffer) < 2 + (buffer[1] & 0x7F)):
            return False
        size, start = buffer[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + size:
            return False
        if buffer[0] & 0x0F in _DATA:
            self._take(start, start + size)
        else:
            del buffer[: start + size]
        return True

    def _take(self, start: int, end: int) -> None:
        answer = bytes(self._buffer[start:end])
        del self._buffer[:end]
        if not self._waiting.done():
            self._waiting.set_result(answer)
