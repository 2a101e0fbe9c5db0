"""Errors that clients get: a code and a message that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_envs.core.errors import OptionError, StateError, StateNotPortable

ENDING = {  # the session is over
    "VERSION_MISMATCH", "TIMEOUT", "LIMIT_REACHED", "CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR",
}  # fmt: skip


class Refusal(Exception):
    """A request that is answered by an error frame."""

    def __init__(self, code: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.index = code, message, index


def field(message: Mapping[str, Any], name: str, kind: type) -> Any:
    """A member of a message; Refusal where it is absent or of another type."""
    value = message.get(name)
    if type(value) is not kind:
        raise Refusal(
            "VALIDATION_ERROR",
            f"{name} must be of type {kind.__name__}, got {type(value).__name__}",
        )
    return value


def as_refusal(error: Exception) -> Refusal:
    """Any exception of a request as the error that its client gets."""
    if isinstance(error, Refusal):
        return error
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return Refusal(code, str(error))
    return Refusal("EXECUTION_ERROR", f"{type(error).__name__}: {error}")


_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (StateError, "STATE_ERROR"),
    (StateNotPortable, "STATE_NOT_PORTABLE"),
    (OptionError, "OPTION_ERROR"),
)
