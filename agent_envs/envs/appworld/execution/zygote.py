"""The fork server: a bare interpreter that forks sessions, signals them, and watches their memory.

One thread, one connection to the host, one request at a time (JSON lines). It ends when the
connection closes or the host is gone, and its sessions end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.envs.appworld.execution import child, clock
from agent_envs.envs.appworld.execution.frames import Lines, pack, unpack
from agent_envs.envs.appworld.execution.interpreter import MODULES

TICK = 0.1
"""Seconds between two looks at the memory and at the host."""

SOON = 0.02
"""The same where more than half of the memory is used."""

_monotonic = time.monotonic  # the real one, before our clock takes its place
_MIB = 1 << 20
_PAGE = resource.getpagesize()
_IDLE = 3 * _MIB  # what a session has of its own in pages that it took from the server
# a killed process's memory takes a moment to come back, and a bomb grows between two looks
_SHARE = 0.75
# parts of the standard library that others import only when called
_LATER = (
    "_strptime encodings.ascii encodings.latin_1 encodings.utf_8_sig encodings.utf_16 "
    "encodings.cp1252 encodings.idna encodings.unicode_escape urllib.parse collections.abc "
    "html.parser html.entities importlib.resources json.tool stringprep"
).split()


def preload() -> None:
    """Import what agents may use: no file can be opened later."""
    for name in sorted(MODULES - {"__future__"}) + _LATER:
        importlib.import_module(name)
    time.strptime("2023-05-18", "%Y-%m-%d")  # fills caches that every session then shares


@dataclass(slots=True)
class Process:
    """One session's process."""

    pid: int
    statm: int
    """Descriptor of its memory figures, or -1."""
    why: str = ""
    """Why it was killed, where this server did it on its own."""

    def resident(self) -> int:
        """Bytes in memory, shared ones included."""
        if self.statm < 0:
            return 0
        try:
            return int(os.pread(self.statm, 128, 0).split()[1]) * _PAGE
        except (OSError, IndexError):  # it just ended
            return 0


class Server:
    """Serves one host.

    Args:
        host: the connection.
        parent: process id of the host; when it is no longer our parent, we end.
        machine: name of the processor's architecture.
        group_mb: MiB that all sessions may have together.
    """

    def __init__(self, host: socket.socket, parent: int, machine: str, group_mb: int) -> None:
        self._host, self._parent, self._machine = host, parent, machine
        self._budget = group_mb * _MIB * _SHARE
        self._processes: dict[int, Process] = {}
        self._count = 0
        self._lines = Lines()
        self._base = _resident()

    def serve(self) -> None:
        """Until the host is gone."""
        waiting = select.poll()
        waiting.register(self._host, select.POLLIN)
        due = 0.0
        while os.getppid() == self._parent:
            left = max(0.0, due - _monotonic())
            if waiting.poll(left * 1000 + 1) and not self._receive():
                return
            if (now := _monotonic()) >= due:
                self._reap()
                due = now + self._watch()

    def _receive(self) -> bool:
        data = self._host.recv(1 << 16)
        self._lines.feed(data)
        while (line := self._lines.next()) is not None:
            request = unpack(line)
            answer = getattr(self, f"do_{request.pop('do')}")
            answer(**request)
        return bool(data)

    def do_start(self, memory_mb: int) -> None:
        """Fork a session; answers with its number and the host's end of its channel."""
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self._host.sendall(pack({"error": f"fork: {error}"}))
            return
        if pid == 0:
            child.main(theirs.fileno(), memory_mb, self._machine, parent)
        self._count += 1
        self._processes[self._count] = Process(pid, _statm(pid))
        socket.send_fds(self._host, [pack({"number": self._count})], [ours.fileno()])
        ours.close()
        theirs.close()

    def do_interrupt(self, number: int) -> None:
        """SIGINT; answered once the signal is pending."""
        if number in self._processes:
            _signal(self._processes[number].pid, signal.SIGINT)
        self._host.sendall(pack({}))

    def do_stop(self, number: int) -> None:
        """Kill a session; answers why it had been killed before, if it had."""
        process = self._processes.pop(number, None)
        if process is not None:
            self._kill(process)
            self._forget(process)
        self._host.sendall(pack({"why": process.why if process else ""}))

    def do_pids(self) -> None:
        """Process ids by number, for measurements and tests."""
        self._host.sendall(pack({str(n): p.pid for n, p in self._processes.items() if p.pid}))

    def _kill(self, process: Process) -> None:
        if process.pid:
            # the group too: where no filter forbids it, code may have started processes
            for send in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            process.pid = 0

    def _forget(self, process: Process) -> None:
        if process.statm >= 0:
            os.close(process.statm)
            process.statm = -1

    def _reap(self) -> None:
        """Take note of those that ended by themselves; the host asks later."""
        for process in self._processes.values():
            if process.pid and os.waitpid(process.pid, os.WNOHANG)[0]:
                process.pid = 0
                self._forget(process)

    def _watch(self) -> float:
        """Kill the largest until all together fit the budget; seconds until the next look.

        The sum is an upper estimate of the proportional set size, which takes too long to ask for when
        memory grows fast: what each has beyond the server's size, and once the server itself.
        """
        sizes = {
            number: max(0, process.resident() - self._base) + _IDLE
            for number, process in self._processes.items()
            if process.pid and not process.why
        }
        total = self._base + sum(sizes.values())
        soon = total > self._budget / 2
        for number in sorted(sizes, key=lambda number: (sizes[number], number), reverse=True):
            if total <= self._budget:
                break
            process = self._processes[number]
            process.why = "memory"
            _signal(process.pid, signal.SIGKILL)  # reaped later: its memory takes a moment to go
            total -= sizes[number]
        return SOON if soon else TICK


def _signal(pid: int, number: int) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _statm(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:
        return -1


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def _missing(machine: str) -> dict[str, str]:
    """Which limits this system lacks: one process tries them all."""
    out, into = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.write(into, pack(child.confine(64, machine, parent)))
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        found: dict[str, Any] = unpack(stream.read() or b'{"a process of its own": "it died"}')
    os.waitpid(pid, 0)
    if not Path("/proc/self/statm").exists():
        found["the memory of all sessions together"] = "there is no /proc"
    return found


def main(descriptor: int, parent: int, machine: str, group_mb: int) -> None:
    """Set up this interpreter, tell the host, serve."""
    gc.disable()  # no collection may leave holes that sessions would fill, each its own copy
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        # children look for libc's functions when no file can be opened any more
        ctypes.CDLL(None).prctl  # noqa: B018
    clock.install_clock()
    clock.install_chance()
    preload()
    with socket.socket(fileno=descriptor) as host:
        host.sendall(pack({"missing": _missing(machine)}))
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.close(null)
        gc.freeze()
        with contextlib.suppress(OSError):
            Server(host, parent, machine, group_mb).serve()
