"""Agents' code in the host's own process: for debugging with code that you trust.

No limit holds here but the number of API calls and the length of the output: code can read every
file, end the process, and never return. The clock and chance are the machine's. Hence the flag.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.core.errors import OptionError
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution.frames import pack, unpack
from agent_envs.envs.appworld.execution.interpreter import (
    Interpreter,
    Stop,
    api_failure,
    calls_exceeded,
)
from agent_envs.envs.appworld.execution.protocol import Call, Execution, Limits, finished, refused

_STDOUT = threading.RLock()  # one for the process, as is what it guards


class InProcessExecutor:
    """Runs code right here; breakpoints work, nothing protects.

    Args:
        unsafe: must be True: "I trust this code with all that this process may do".

    Raises:
        OptionError: ``unsafe`` is not True.
    """

    def __init__(self, unsafe: bool = False) -> None:
        if unsafe is not True:
            raise OptionError(
                "the inprocess executor gives agents' code all that this process may do; for "
                "debugging with code that you trust pass unsafe=True, else use 'process'"
            )

    def session(
        self, *, now: str, seed: int, apps: Mapping[str, Sequence[str]], limits: Limits
    ) -> InProcessSession:
        """A namespace; ``now`` and ``seed`` have no effect, since the process shares both."""
        return InProcessSession(apps, limits)

    def close(self) -> None:
        """Nothing is held."""


class InProcessSession:
    """One namespace. Executions of all sessions wait for each other: they share ``sys.stdout``."""

    def __init__(self, apps: Mapping[str, Sequence[str]], limits: Limits) -> None:
        self._apps, self._limits = apps, limits
        self._python = self._fresh()
        self._call: Call | None = None
        self._calls = 0
        self._error: BaseException | None = None

    def _fresh(self) -> Interpreter:
        return Interpreter(self._ask, self._apps, self._limits.output)

    def run(self, code: str, call: Call) -> Execution:
        """Execute ``code``.

        Raises:
            Exception: whatever ``call`` raises besides ApiError; the namespace is lost then.
        """
        with _STDOUT:
            if (outcome := refused(code)) is not None:
                return outcome
            self._call, self._calls, self._error = call, 0, None
            text, failed = self._python.run(code)
            if self._error is not None:
                self._python = self._fresh()
                raise self._error
            return Execution(finished(text, self._limits.output), failed, False, self._calls)

    def _ask(self, app: str, api: str, arguments: dict[str, Any]) -> Any:
        try:
            sent = unpack(pack(arguments))  # a copy, as over a channel
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"arguments of {app}.{api} must be JSON values: {error}") from None
        if self._calls >= self._limits.calls:
            raise Stop(calls_exceeded(self._limits.calls))
        self._calls += 1
        assert self._call is not None
        try:
            return unpack(pack({"value": self._call(app, api, sent)}))["value"]
        except ApiError as error:
            failure = api_failure(error.status, error.message)
        except BaseException as error:
            self._error = error
            raise Stop("The host's side failed.") from error
        raise failure

    def snapshot(self) -> bytes | None:
        """None: replay the code."""
        return None

    def close(self) -> None:
        self._python = self._fresh()
