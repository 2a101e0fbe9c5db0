"""Agents' code in processes of their own: forked from a clean interpreter, confined by the kernel.

What it is: a separate address space without files, network or processes, bounded in time and
memory, that can only ask for API calls. What it is not: a virtual machine. Code shares the kernel with
the host, so a fault of the kernel's few allowed system calls is a way out.

Linux has all limits; elsewhere a warning at the start says which are off. Windows has no fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.core.errors import positive
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution.fork_server import ForkServer
from agent_envs.envs.appworld.execution.frames import MAX_FRAME, FrameError, Lines, pack, unpack
from agent_envs.envs.appworld.execution.interpreter import timed_out
from agent_envs.envs.appworld.execution.protocol import (
    Call,
    Execution,
    ExecutorError,
    Limits,
    finished,
    refused,
)

GRACE = 1.0
"""Seconds between the interruption, which keeps the variables, and the kill, which does not."""

_WHY = {
    "memory": "It was ended since all sessions together had too much memory and it had the most.",
    "channel": "It was ended since the code wrote into the channel to its runner.",
    "": "The code ended or crashed it.",
    "fork": "It belongs to the process that this one was forked from.",
}


def _lost(why: str) -> str:
    return (
        f"Execution failed. The Python process of this code is gone, and all variables are lost. "
        f"{_WHY.get(why, why)}"
    )


class ProcessExecutor:
    """The default executor: one fork server per host process, one process per session.

    Safe to use from several threads. A process forked from the host starts a fork server of its own;
    sessions that it inherited are lost there.

    Args:
        group_mb: MiB that all sessions may have together (proportional set size); beyond three
            quarters of it the largest is ended, since memory grows on while it is being counted.

    Raises:
        OptionError: ``group_mb`` is no positive integer.
    """

    def __init__(self, group_mb: int = 2048) -> None:
        self._group_mb = positive("group_mb", group_mb)
        self._machine = platform.machine()
        self._server: ForkServer | None = None
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[ProcessSession] = weakref.WeakSet()
        _EXECUTORS.add(self)

    def session(
        self, *, now: str, seed: int, apps: Mapping[str, Sequence[str]], limits: Limits
    ) -> ProcessSession:
        """A namespace in a process of its own, which starts with the first execution."""
        made = ProcessSession(self, _Start(now, seed, apps, limits))
        self._sessions.add(made)
        return made

    def server(self) -> ForkServer:
        """The fork server, started when there is none.

        Raises:
            ExecutorError: it does not start.
        """
        with self._lock:
            if self._server is None:
                self._server = ForkServer(self._group_mb, self._machine)
            return self._server

    def failed(self, server: ForkServer) -> None:
        """``server`` answers no more: the next session gets another."""
        with self._lock:
            if self._server is server:
                self._server = None
                server.close()

    def close(self) -> None:
        """End all sessions, each once its execution is over, and the fork server."""
        for session in list(self._sessions):
            session.close()
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.close()

    def after_fork(self) -> None:
        """In a forked process: forget what belongs to the parent."""
        self._lock = threading.Lock()
        server, self._server = self._server, None
        for session in self._sessions:
            session.after_fork()
        if server is not None:
            server.disown()


_EXECUTORS: weakref.WeakSet[ProcessExecutor] = weakref.WeakSet()


def _after_fork() -> None:
    for executor in _EXECUTORS:
        executor.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True, slots=True)
class _Start:
    """What a namespace begins with."""

    now: str
    seed: int
    apps: Mapping[str, Sequence[str]]
    limits: Limits

    def message(self, passed: int) -> dict[str, Any]:
        apps = {app: list(names) for app, names in self.apps.items()}
        return {
            "now": self.now,
            "passed": passed,
            "seed": self.seed,
            "apps": apps,
            "output": self.limits.output,
            "seconds": self.limits.seconds,
            "calls": self.limits.calls,
        }


class _Broken(Exception):
    """The session's process cannot be used any more; the text is a key of _WHY, or a sentence."""


class _Channel:
    """The connection to one session's process, with the deadline of the execution that runs."""

    def __init__(self, server: ForkServer, limits: Limits) -> None:
        self.server = server
        self.number, self.socket = server.start(limits.memory_mb)
        self._lines = Lines(max(MAX_FRAME, 24 * limits.output))  # twice the bytes, escaped as JSON
        self._deadline = 0.0
        self.interrupted = False

    def begin(self, seconds: float) -> None:
        """A new execution; what still lies in the channel was forged."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if data := self.socket.recv(1):
                self._lines.feed(data)
        if self._lines.pending:
            raise _Broken("channel")
        self._deadline = time.monotonic() + seconds
        self.interrupted = False

    def extend(self, seconds: float) -> None:
        """Time spent on the host's side is not the code's."""
        self._deadline += seconds

    def _wait(self) -> None:
        """Set the socket's timeout to what is left; interrupts first, then gives up."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            if self.interrupted:
                raise _Broken("timeout")
            self.interrupted = True
            self.server.interrupt(self.number)
            self._deadline, left = time.monotonic() + GRACE, GRACE
        self.socket.settimeout(left)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait()
            with contextlib.suppress(TimeoutError):
                view = view[self.socket.send(view) :]

    def receive(self) -> dict[str, Any]:
        try:
            while (line := self._lines.next()) is None:
                self._wait()
                with contextlib.suppress(TimeoutError):
                    data = self.socket.recv(1 << 16)
                    if not data:
                        raise _Broken("")
                    self._lines.feed(data)
            return unpack(line)
        except FrameError as error:
            raise _Broken("channel") from error


class ProcessSession:
    """One namespace in a process of its own. Executions from several threads wait for each other."""

    def __init__(self, executor: ProcessExecutor, start: _Start) -> None:
        self._executor, self._start = executor, start
        self._lock = threading.Lock()
        self._channel: _Channel | None = None
        self._inherited = False
        self._passed = 0  # API calls so far: seconds that the simulated clock has moved
        self._calls = 0

    def run(self, code: str, call: Call) -> Execution:
        """Execute ``code``.

        Raises:
            ExecutorError: no process can be started.
            Exception: whatever ``call`` raises besides ApiError; the namespace is lost then.
        """
        with self._lock:
            self._calls = 0
            if self._inherited:
                self._inherited = False
                return Execution(_lost("fork"), True, True, 0)
            if (outcome := refused(code)) is not None:
                return outcome
            try:
                text, failed = self._execute(code, call)
                output = finished(text, self._start.limits.output)
                return Execution(output, failed, False, self._calls)
            except (_Broken, OSError) as error:
                why = str(error) if isinstance(error, _Broken) else ""
                return self._ended(why)
            except BaseException:
                self._drop()
                raise

    def _execute(self, code: str, call: Call) -> tuple[str, bool]:
        limits = self._start.limits
        fresh = self._channel is None
        channel = self._channel = self._channel or self._open()
        channel.begin(limits.seconds)
        if fresh:
            channel.send(pack(self._start.message(self._passed)))
        # unknown to the code before it runs: outcomes forged in advance are not taken
        token = secrets.token_hex(8)
        channel.send(pack({"token": token, "code": code}))
        while True:
            message = channel.receive()
            if message.get("token") != token:
                raise _Broken("channel")
            if "call" in message:
                begun = time.monotonic()
                answer = pack(self._answer(message["call"], call, channel.interrupted))
                channel.extend(time.monotonic() - begun)
                channel.send(answer)
                continue
            text, failed = message.get("output"), message.get("failed")
            if not isinstance(text, str) or not isinstance(failed, bool):
                raise _Broken("channel")
            return text, failed

    def _open(self) -> _Channel:
        server = self._executor.server()
        try:
            return _Channel(server, self._start.limits)
        except (OSError, FrameError):  # it died since; a second one must work
            self._executor.failed(server)
        try:
            return _Channel(self._executor.server(), self._start.limits)
        except (OSError, FrameError) as error:
            raise ExecutorError(f"the fork server died twice: {error}") from error

    def _answer(self, request: Any, call: Call, late: bool) -> dict[str, Any]:
        match request:
            case [str(app), str(api), dict(arguments)]:
                if late:
                    return {"timeout": True}
                if self._calls >= self._start.limits.calls:
                    return {"stop": True}
                self._calls += 1
                self._passed += 1
                try:
                    return {"value": call(app, api, arguments)}
                except ApiError as error:
                    return {"error": [error.status, error.message]}
            case _:
                raise _Broken("channel")

    def _ended(self, why: str) -> Execution:
        """The outcome of an execution whose process is gone or has to go."""
        reason = self._drop()
        if why == "timeout":
            text = (
                f"{timed_out(self._start.limits.seconds)} The code did not stop when it was "
                "interrupted, so its Python process was ended, and all variables are lost."
            )
        else:
            text = _lost(reason or why)
        return Execution(text, True, True, self._calls)

    def _drop(self) -> str:
        """End the process, if there is one; why the fork server had ended it, if it had."""
        channel, self._channel = self._channel, None
        if channel is None:
            return ""
        channel.socket.close()
        try:
            return channel.server.stop(channel.number)
        except (OSError, FrameError, json.JSONDecodeError):
            self._executor.failed(channel.server)
            return "The fork server ended."

    def snapshot(self) -> bytes | None:
        """None: a process cannot be carried elsewhere; replay its code against recorded answers."""
        return None

    def close(self) -> None:
        with self._lock:
            self._drop()
            self._inherited = False

    def after_fork(self) -> None:
        """In a forked process: the namespace belongs to the parent."""
        self._lock = threading.Lock()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.socket.close()
            self._inherited = True
