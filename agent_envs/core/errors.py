"""Errors of the hub: one base class, each message says what was wrong, where, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

Made = TypeVar("Made")


class AgentEnvError(Exception):
    """Base of all errors that the hub raises on purpose."""


class OptionError(AgentEnvError, ValueError):
    """An option has a value that is not understood; the message lists the valid ones."""


class DataError(AgentEnvError):
    """Benchmark data is missing, foreign or corrupt; the message names the path and the remedy."""


class RetrieverError(AgentEnvError):
    """A retriever cannot be used: nothing answers at its URL, or its index is empty or broken."""


class ServerError(AgentEnvError):
    """An env server refused a request; ``code`` says which way."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ServerUnreachable(ServerError, ConnectionError):
    """No env server answers at a URL; the message holds the command that starts one."""


class StateError(AgentEnvError, ValueError):
    """A saved state cannot be restored here. The environment is left unchanged."""


class StateNotPortable(AgentEnvError):
    """This environment cannot save its state (``profile.portable_state`` says so beforehand)."""


class TemplateError(AgentEnvError, ValueError):
    """A prompt template names a placeholder that does not exist."""


class PromptOverflow(AgentEnvError):
    """The task and the fixed text alone exceed the prompt budget."""


class StalePrompt(AgentEnvError, ValueError):
    """An answer was given to a prompt that is not waiting for one (any more)."""


class PolicyError(AgentEnvError):
    """A policy cannot act here, for example an expert where the environment has none."""


class MissingExtra(AgentEnvError, ImportError):
    """An optional dependency is absent; the message holds the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'agent-envs[{extra}]'")
        self._parts = feature, extra

    def __reduce__(self) -> tuple[Any, ...]:  # by the message alone a worker could not send it
        return type(self), self._parts


def positive(what: str, value: object) -> int:
    """``value`` as an int; OptionError unless it is a positive integer (NumPy's count, bools not)."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 1:
        raise OptionError(f"{what} must be a positive integer, got {value!r}")
    return int(value)


def finite(what: str, value: object) -> float:
    """``value`` as a float; OptionError unless it is a finite number (NumPy's count, bools not)."""
    try:
        number = (
            float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        )
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{what} must be a finite number, got {value!r:.40}")
    return number


def seconds(what: str, value: object) -> float:
    """``value`` itself; OptionError unless it is a positive number of seconds (bools not)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise OptionError(f"{what} must be a positive number of seconds, got {value!r:.40}")
    return value


def flag(what: str, value: object) -> None:
    """OptionError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{what} must be True or False, got {value!r}")


def made(what: str, kind: Callable[..., Made], options: Mapping[str, Any]) -> Made:
    """``kind(**options)`` of a user's options; OptionError for names or types that it does not take."""
    try:
        return kind(**options)
    except TypeError as error:
        raise OptionError(f"{what}: {error}; given: {', '.join(map(str, options))}") from error


def one_of(what: str, value: object, valid: Iterable[object]) -> None:
    """Raise :class:`OptionError` unless ``value`` is one of ``valid``."""
    valid = list(valid)
    if value not in valid:
        raise OptionError(f"unknown {what} {value!r}; valid: {', '.join(map(str, valid))}")
