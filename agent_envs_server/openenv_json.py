"""OpenEnv's frames as text: reading what anybody may send, writing only what every JSON reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from agent_envs_server.refusals import Refusal

_SPELLED = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_WORDS = {True: "true", False: "false", None: "null"}


def read(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        Refusal: it is none (INVALID_JSON).
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # digits without end are a ValueError, too
        raise Refusal("INVALID_JSON", f"no JSON: {type(error).__name__}: {error}") from None


def glance(text: str) -> Any:
    """:func:`read` in a fifth of the time; whole numbers of more than 64 bits come as floats."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # it knows no NaN, no lone surrogates
        return read(text)


def completion(data: Mapping[str, Any], frame: str) -> str:
    """The reply of a model in a step's ``data``; ``frame`` is the text that ``data`` was read from.

    Harnesses decode replies as JSON before they send them: ``10`` arrives as a number, ``true`` as a
    bool, an object takes the place of ``data``. Whatever it was, it is the agent's turn, so numbers
    and words come back as they were spelled, and the rest as JSON text.
    """
    value = data.get("text", data)
    if isinstance(value, str):
        return value
    value = read(frame)["data"]  # with whole numbers of any size
    value = value.get("text", value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, int | float):
        spelled: str = _SPELLED.decode(frame)["data"]["text"]
        return spelled
    return json.dumps(value, ensure_ascii=False)


def write(value: Any) -> str:
    """``value`` as JSON; numbers that JSON lacks (NaN, infinities) become null.

    Raises:
        TypeError, ValueError: a part has no JSON form.
    """
    try:
        return orjson.dumps(value, _plain, _AS_IS).decode()
    except (
        TypeError
    ):  # what only the slow way can write: larger numbers, lone surrogates, other keys
        pass
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_finite(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # NumPy
        return _finite(value.tolist())
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


_AS_IS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False)
