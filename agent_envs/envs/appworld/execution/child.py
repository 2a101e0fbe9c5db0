"""A session's process, forked by the fork server: gives up all it can, then runs an agent's code.

Nothing of the host is here: no world, no checks, no file; only a channel to ask for API calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import resource
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from agent_envs.envs.appworld.execution import clock, seccomp
from agent_envs.envs.appworld.execution.frames import MAX_FRAME, Lines, pack, unpack
from agent_envs.envs.appworld.execution.interpreter import (
    Interpreter,
    Stop,
    api_failure,
    calls_exceeded,
    timed_out,
)

CHANNEL = 3
"""The descriptor of the channel; 0 to 2 are the null device, and no other is open."""

_MIB = 1 << 20
_PR_SET_PDEATHSIG = 1


def confine(memory_mb: int, machine: str, parent: int) -> dict[str, str]:
    """Set every limit that this system has; returns which ones it lacks, and why.

    Args:
        memory_mb: MiB of address space besides what the process has now.
        machine: name of the processor's architecture.
        parent: process id of the fork server, with which this process ends.
    """
    missing = {}
    os.setsid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError) as error:
        missing["end with the fork server"] = str(error)
    if os.getppid() != parent:
        os._exit(1)
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError as error:
        missing["being the first to go when memory is short"] = str(error)
    for name, bound in _rlimits(memory_mb).items():
        try:
            resource.setrlimit(getattr(resource, name), (bound, bound))
        except (OSError, ValueError, AttributeError) as error:
            missing[f"rlimit {name}"] = str(error)
    reason = seccomp.confine(machine)
    if reason:
        missing["system calls (files, network and processes are reachable)"] = reason
    return missing


def _rlimits(memory_mb: int) -> dict[str, int]:
    return {
        "RLIMIT_AS": _address_space() + memory_mb * _MIB,
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": CHANNEL + 1,
    }


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 512 * _MIB
    return pages * resource.getpagesize()


def keep_only(channel: int) -> None:
    """Close every descriptor but ``channel``, which becomes CHANNEL."""
    if channel != CHANNEL:
        os.dup2(channel, CHANNEL)
    os.closerange(CHANNEL + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16))


class Session:
    """Executes what the host sends, over CHANNEL.

    The host's first message is the set-up (now, passed, seed, apps, output, seconds, calls), each later one
    an execution (code, token). While it runs, calls go out and answers come in; the last is the outcome.
    Everything that goes out carries the execution's token.
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._token = ""
        setup = self._read()
        clock.CLOCK.set(setup["now"], setup["passed"])
        clock.seed_chance(setup["seed"])
        self._exceeded = calls_exceeded(setup["calls"])
        self._timed_out = timed_out(setup["seconds"])
        self._talking = self._late = False
        self._python = Interpreter(self._ask, setup["apps"], setup["output"])
        signal.signal(signal.SIGINT, self._interrupt)

    def serve(self) -> None:
        """Until the channel closes."""
        while True:
            request = self._read()
            self._token, self._talking, self._late = request["token"], False, False
            text, failed = self._python.run(request["code"])
            self._write({"output": text, "failed": failed})

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._talking:  # half a message would spoil the channel: the host answers soon
            self._late = True
        elif self._python.running:
            raise Stop(self._timed_out)

    def _ask(self, app: str, api: str, arguments: dict[str, Any]) -> Any:
        try:
            line = pack({"token": self._token, "call": [app, api, arguments]})
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"arguments of {app}.{api} must be JSON values: {error}") from None
        if len(line) > MAX_FRAME:
            raise ValueError(f"arguments of {app}.{api} are too large: {len(line)} bytes")
        self._talking = True
        os_write(line)
        answer = self._read()
        self._talking = False
        if self._late or "timeout" in answer:
            raise Stop(self._timed_out)
        if "stop" in answer:
            raise Stop(self._exceeded)
        clock.CLOCK.passed += 1  # the world's clock moves by a second with each call
        if "value" in answer:
            return answer["value"]
        raise api_failure(*answer["error"])

    def _write(self, message: dict[str, Any]) -> None:
        os_write(pack({"token": self._token, **message}))

    def _read(self) -> dict[str, Any]:
        while (line := self._lines.next()) is None:
            data = os.read(CHANNEL, 1 << 16)
            if not data:
                os._exit(0)
            self._lines.feed(data)
        return unpack(line)


def os_write(data: bytes) -> None:
    """All of ``data`` to the channel."""
    view = memoryview(data)
    while view:
        view = view[os.write(CHANNEL, view) :]


def main(channel: int, memory_mb: int, machine: str, parent: int) -> NoReturn:
    """Become a session's process; never returns."""
    code = 1
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        keep_only(channel)
        sys.path[:] = []
        sys.path_importer_cache.clear()
        warnings.simplefilter("ignore")
        confine(memory_mb, machine, parent)
        random.seed(0)
        gc.enable()
        Session().serve()
        code = 0
    os._exit(code)
