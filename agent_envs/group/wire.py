"""Results and requests as MessagePack, the same for the server and its client.

MessagePack has no tuples, no arrays and no integers over 64 bit; these travel as extension types, so
that what comes out equals what went in, types included. Nothing here can run code when read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from agent_envs.core.errors import MissingExtra
from agent_envs.group.protocol import Result, failure

try:
    import msgpack
except ImportError as _error:
    raise MissingExtra("the env server and its client", "server") from _error

PROTOCOL_VERSION = 1
PATH = "/group"  # where a server answers group frames

_TUPLE, _ARRAY, _SCALAR, _INTEGER = 1, 2, 3, 4
_PLAIN: tuple[Any, ...] = (str, bytes, float, list, dict)  # whose subclasses travel as these
_KINDS = "biufcSU"  # NumPy kinds that are plain numbers or text
_DEPTH = (
    32  # extensions inside extensions; each level costs C stack, which hostile frames would exhaust
)


class WireError(ValueError):
    """Bytes that are no frame, or a value that cannot be written into one."""


class SignedState(bytes):
    """A replica's state as a server gave it: equal to the local bytes, with the server's signature.

    Servers restore only states that they (or servers with the same key) signed. Copies and pickles
    keep the signature; ``bytes(state)`` and slices lose it.

    Attributes:
        signature: HMAC-SHA256 of the environment's id and the state.
    """

    signature: bytes

    def __new__(cls, state: bytes, signature: bytes) -> SignedState:
        found = super().__new__(cls, state)
        found.signature = signature
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (bytes(self), self.signature)


def pack(value: Any) -> bytes:
    """A frame.

    Raises:
        WireError: a value has a type that no other process could read.
    """
    try:
        return _pack(value, 0)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"cannot be sent: {error}") from error


def unpack(data: bytes) -> Any:
    """The value of a frame.

    Raises:
        WireError: the bytes are no frame.
    """
    try:
        return _unpack(data, 0)
    except (
        Exception
    ) as error:  # msgpack raises its own, ValueError, TypeError, UnicodeDecodeError, ...
        raise WireError(f"no MessagePack frame: {type(error).__name__}: {error}") from error


def pack_result(result: Result) -> list[Any]:
    return [
        result.observation, result.info, result.reward, result.terminated, result.truncated, result.error,
    ]  # fmt: skip


def pack_reply(reply: dict[str, Any]) -> bytes:
    """A reply's frame; an answer of a replica that cannot be sent becomes a failed result (F116)."""
    try:
        return pack(reply)
    except WireError:
        of_replicas = [key for key in ("results", "actions") if key in reply]
        return pack({**reply, **{key: list(map(_sendable, reply[key])) for key in of_replicas}})


def _sendable(answer: Any) -> Any:
    try:
        pack(answer)
    except WireError as error:
        return pack_result(failure(f"its result {error}"))
    return answer


def unpack_result(fields: Any) -> Result:
    return Result(*fields)


def _pack(value: Any, depth: int) -> bytes:
    if depth > _DEPTH:
        raise ValueError(f"tuples nested deeper than {_DEPTH}")
    packed: bytes = msgpack.packb(
        value,
        default=partial(_default, depth=depth + 1),
        strict_types=True,
        unicode_errors="surrogatepass",
    )
    return packed


def _unpack(data: bytes, depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError(f"tuples nested deeper than {_DEPTH}")
    return msgpack.unpackb(
        data,
        ext_hook=partial(_extension, depth=depth + 1),
        strict_map_key=False,
        unicode_errors="surrogatepass",
    )


def _default(value: Any, depth: int) -> Any:
    """What MessagePack does not know: an extension, or the plain form of a subclass."""
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _pack(list(value), depth))
    if isinstance(value, np.ndarray):
        _check_kind(value.dtype)
        head = [value.dtype.str, list(value.shape)]
        return msgpack.ExtType(_ARRAY, _pack([*head, value.tobytes()], depth))
    if isinstance(value, np.generic):
        _check_kind(value.dtype)
        return msgpack.ExtType(_SCALAR, _pack([value.dtype.str, value.tobytes()], depth))
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        return msgpack.ExtType(_INTEGER, value.to_bytes(size, "big", signed=True))
    for plain in _PLAIN:
        if isinstance(value, plain):
            return plain(value)
    raise TypeError(f"a {type(value).__name__}")


def _extension(code: int, data: bytes, depth: int) -> Any:
    return _READERS[code](data, depth)


def _array(data: bytes, depth: int) -> np.ndarray:
    dtype, shape, content = _unpack(data, depth)
    return np.frombuffer(content, _dtype(dtype)).reshape(shape)


def _scalar(data: bytes, depth: int) -> Any:
    dtype, content = _unpack(data, depth)
    (value,) = np.frombuffer(content, _dtype(dtype))
    return value


def _dtype(name: Any) -> np.dtype:
    if not isinstance(name, str):
        raise WireError(f"a dtype must be text, got {type(name).__name__}")
    dtype = np.dtype(name)
    _check_kind(dtype)
    return dtype


def _check_kind(dtype: np.dtype) -> None:
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise TypeError(f"an array of {dtype}")


_READERS: dict[int, Callable[[bytes, int], Any]] = {
    _TUPLE: lambda data, depth: tuple(_unpack(data, depth)),
    _ARRAY: _array,
    _SCALAR: _scalar,
    _INTEGER: lambda data, depth: int.from_bytes(data, "big", signed=True),
}
