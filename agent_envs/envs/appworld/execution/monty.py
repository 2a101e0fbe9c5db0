"""Agents' code in pydantic-monty, an interpreter of a part of Python with snapshots that travel.

Between two executions a namespace is bytes, so that a few workers serve any number of replicas and a
replica can be carried to another process. The price is the language: no inheritance, ``yield``,
``del`` or ``dir``, fewer modules. The clock stands still at ``now``, and ``hash`` of a string
differs from machine to machine.

A snapshot is not authenticated: restore none that others could have written.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pydantic_monty

from agent_envs.core.errors import positive
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution.frames import pack, unpack
from agent_envs.envs.appworld.execution.interpreter import (
    SHOWN,
    Api,
    Ask,
    api_failure,
    calls_exceeded,
    timed_out,
)
from agent_envs.envs.appworld.execution.protocol import (
    Call,
    Execution,
    ExecutorError,
    Limits,
    finished,
    refused,
)

_WAIT = 120.0  # seconds for a free worker; without it the wait would have no end
_SUSPENSIONS = 1_000_000  # calls are counted here, and with our sentence
_AS_BEFORE = "Variables are as they were before this code."
_NUMBERED = re.compile(r"<python-input-\d+>")
# the first thing that a namespace runs; frames of it are not shown
_PRELUDE = """
import json as _json
_print = print
def print(*values, **options):
    if len(values) == 1 and not options and type(values[0]) in (list, dict):
        try:
            text = _json.dumps(values[0])
            if len(text) >= 100:
                text = _json.dumps(values[0], indent=1)
        except (TypeError, ValueError, RecursionError):
            text = str(values[0])
        _print(text)
    else:
        _print(*values, **options)
def input(*_):
    raise Exception("input(..) is not allowed: nobody answers here. Put the value into the code.")
"""

_STARTED: set[int] = set()
"""The process whose runtime runs; a forked one finds its parent here, and has none."""


class _Host:
    """What stands behind ``apis`` and its apps; never looked at."""


# ids of their own: a snapshot then finds them in every process
_CLASS = pydantic_monty.ClassType(_Host, id=uuid5(NAMESPACE_OID, "agent-envs"))


class _App(pydantic_monty.ClassInstance):
    """``apis.<app>``: any method is an API."""

    def __init__(self, ask: Ask, name: str) -> None:
        super().__init__(_Host(), id=uuid5(NAMESPACE_OID, f"agent-envs {name}"), class_type=_CLASS)
        self._ask, self._name = ask, name

    def get_eager_attrs(self) -> dict[str, Any]:
        return {}

    def lookup_lazy_attrs(self, name: str) -> Any:
        raise AttributeError(f"call it at once, as in apis.{self._name}.{name}(name=value)")

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Api(self._ask, self._name, name)(*args, **kwargs)


class _Apis(pydantic_monty.ClassInstance):
    """``apis``: all apps are sent along, so that names given to them earlier still work."""

    def __init__(self, ask: Ask, apps: Sequence[str]) -> None:
        super().__init__(_Host(), id=uuid5(NAMESPACE_OID, "agent-envs apis"), class_type=_CLASS)
        self._ask, self._apps = ask, apps

    def get_eager_attrs(self) -> dict[str, Any]:
        return {name: _App(self._ask, name) for name in self._apps}

    def lookup_lazy_attrs(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _App(self._ask, name)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise AttributeError(f"apis.{name} is an app: call one of its APIs")


class MontyExecutor:
    """Worker processes shared by all sessions; each execution takes one for its time.

    Args:
        workers: processes at most; None for the number of processors.

    Raises:
        OptionError: ``workers`` is no positive integer.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = positive("workers", os.cpu_count() or 1 if workers is None else workers)
        self._lock = threading.Lock()
        self._pool: pydantic_monty.Monty | None = None

    def session(
        self, *, now: str, seed: int, apps: Mapping[str, Sequence[str]], limits: Limits
    ) -> MontySession:
        """A namespace; ``now`` is where its clock stands still."""
        settings: dict[str, Any] = {
            "script_name": SHOWN,
            "limits": {
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory_mb << 20,
                "max_suspensions": _SUSPENSIONS,
            },
            "os_policy": {
                "datetime": datetime.datetime.fromisoformat(now),
                "sleep": "zero",
                "random_start": {"seed": seed},
            },
        }
        return MontySession(self, settings, tuple(apps), limits)

    @contextlib.contextmanager
    def worker(self, settings: Mapping[str, Any]) -> Iterator[pydantic_monty.MontySession]:
        """A worker for one execution.

        Raises:
            ExecutorError: all workers are busy for two minutes, or none can be started here.
        """
        with contextlib.ExitStack() as stack:
            try:
                worker = stack.enter_context(self._started().checkout(**settings))
            except (TimeoutError, OSError, RuntimeError) as error:
                raise ExecutorError(f"no monty worker: {error}") from error
            yield worker

    def _started(self) -> pydantic_monty.Monty:
        with self._lock:
            if _STARTED and os.getpid() not in _STARTED:
                raise ExecutorError(
                    "monty was used before this process was forked, which its runtime does not "
                    "survive: start workers by 'spawn', or use the executor 'process'"
                )
            if self._pool is None:
                _STARTED.add(os.getpid())
                pool = pydantic_monty.Monty(
                    max_processes=self._workers, checkout_timeout=_WAIT, min_processes=0
                )
                self._pool = pool.__enter__()
            return self._pool

    def close(self) -> None:
        """End the workers; namespaces are bytes and stay."""
        with self._lock:
            if self._pool is not None and os.getpid() in _STARTED:
                self._pool.__exit__(None, None, None)
                self._pool = None


class MontySession:
    """One namespace, which is bytes between two executions."""

    def __init__(
        self,
        executor: MontyExecutor,
        settings: Mapping[str, Any],
        apps: Sequence[str],
        limits: Limits,
    ) -> None:
        self._executor, self._settings = executor, settings
        self._apps, self._limits = apps, limits
        self._lock = threading.Lock()
        self._state: bytes | None = None

    def run(self, code: str, call: Call) -> Execution:
        """Execute ``code``.

        Raises:
            ExecutorError: no worker can be had.
            Exception: whatever ``call`` raises besides ApiError; the namespace stays as it was.
        """
        with self._lock:
            if (outcome := refused(code)) is not None:
                return outcome
            calls = _Calls(call, self._limits.calls)
            printed = _Printed(self._limits.output)
            with self._executor.worker(self._settings) as worker:
                failure = self._feed(worker, code, calls, printed)
            if calls.error is not None:
                raise calls.error
            text = printed.text()
            if failure:
                text = f"{text.rstrip()}\n{failure}" if text.strip() else failure
            text = text.removesuffix("\n") or "Execution successful."
            return Execution(finished(text, self._limits.output), bool(failure), False, calls.count)

    def _feed(
        self, worker: pydantic_monty.MontySession, code: str, calls: _Calls, printed: _Printed
    ) -> str:
        """Run the code and keep the namespace; how it failed, or an empty string."""
        failure = ""
        try:
            if self._state is None:
                worker.feed_run(_PRELUDE)
            else:
                worker.load_session(self._state)
            apis = _Apis(calls.ask, self._apps)
            worker.feed_run(code, inputs={"apis": apis}, print_callback=printed.write)
        except pydantic_monty.MontySyntaxError as error:
            failure = _syntax_failure(error)
        except pydantic_monty.MontyCrashedError:
            return f"Execution failed. The interpreter crashed or hung. {_AS_BEFORE}"
        except pydantic_monty.MontyRuntimeError as error:
            if isinstance(error.exception(), TimeoutError) and not error.traceback():
                # stopped in the middle of something: that namespace is not to be trusted
                return f"{timed_out(self._limits.seconds)}\n{_AS_BEFORE}"
            failure = calls_exceeded(calls.limit) if calls.exceeded else _run_failure(error)
        except pydantic_monty.MontyError as error:
            failure = f"Execution failed. {error}"
        if calls.error is None:
            self._state = worker.dump()
        return failure

    def snapshot(self) -> bytes | None:
        """The namespace; empty before the first execution."""
        return self._state or b""

    def restore(self, snapshot: bytes) -> None:
        """Take the namespace of a session with the same settings, of any process."""
        with self._lock:
            self._state = snapshot or None

    def close(self) -> None:
        with self._lock:
            self._state = None


class _Calls:
    """The API calls of one execution."""

    def __init__(self, call: Call, limit: int) -> None:
        self._call, self.limit = call, limit
        self.count = 0
        self.exceeded = False
        self.error: BaseException | None = None
        """What the host's side raised besides ApiError."""

    def ask(self, app: str, api: str, arguments: dict[str, Any]) -> Any:
        try:
            sent = unpack(pack(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"arguments of {app}.{api} must be JSON values: {error}") from None
        if self.error is not None or self.count >= self.limit:
            self.exceeded = True
            raise Exception(calls_exceeded(self.limit))
        self.count += 1
        try:
            return self._call(app, api, sent)
        except ApiError as error:
            raise api_failure(error.status, error.message) from None
        except Exception as error:
            self.error = error
            raise


class _Printed:
    """Keeps the first characters of what is printed; never stops the code."""

    def __init__(self, limit: int) -> None:
        self._room = limit + 1
        self._parts: list[str] = []

    def write(self, stream: str, text: str) -> None:
        if self._room > 0:
            self._parts.append(text[: self._room])
            self._room -= len(text)

    def text(self) -> str:
        return "".join(self._parts)


def _syntax_failure(error: pydantic_monty.MontySyntaxError) -> str:
    frames = error.traceback()
    line = (frames[-1].source_line or "") if frames else ""
    return f"Syntax error in line:\n{line}\nMessage: {error.display('msg')}"


def _run_failure(error: pydantic_monty.MontyRuntimeError) -> str:
    lines = ["Execution failed. Traceback:"]
    for frame in error.traceback():
        if not frame.filename.endswith("-0>"):  # the prelude
            lines.append(f'  File "{SHOWN}", line {frame.line}, in {frame.function_name}')
            lines.append(f"    {(frame.source_line or '').strip()}")
    lines.append(error.display("type-msg"))
    return _NUMBERED.sub(SHOWN, "\n".join(lines))
