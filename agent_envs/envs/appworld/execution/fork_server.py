"""The host's side of the fork server: start it, ask it for sessions, end it.

The server itself is ``zygote.py``: a clean interpreter that forks a confined process for each session.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_envs.envs.appworld.execution.frames import FrameError, Lines, pack, unpack
from agent_envs.envs.appworld.execution.protocol import ExecutorError

_END = 1.0  # seconds to end by itself, once the connection is closed
_START = 30.0  # seconds for the fork server to come up, and for any of its answers
_PARENTS = ("agent_envs", "agent_envs.envs", "agent_envs.envs.appworld")
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_HERE = "agent_envs.envs.appworld.execution"
# packages without their __init__: the fork server must hold nothing but what agents' code needs
_BOOT = f"""
import sys, types
folder, descriptor, parent, machine, group_mb = sys.argv[1:]
for name in {(*_PARENTS, _HERE)!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
sys.modules[{_HERE!r}].__path__ = [folder]
from agent_envs.envs.appworld.execution import zygote
zygote.main(int(descriptor), int(parent), machine, int(group_mb))
"""
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")  # some Pythons do not start without


class ForkServer:
    """The host's handle on one fork server; usable from several threads.

    Raises:
        ExecutorError: it does not start.
    """

    def __init__(self, group_mb: int, machine: str) -> None:
        if not hasattr(os, "fork"):
            raise ExecutorError(
                "the process executor needs fork, which this system lacks; use executor='monty'"
            )
        self._lock = threading.Lock()
        self._lines = Lines()
        self.control, theirs = socket.socketpair()
        self.control.settimeout(_START)
        with theirs:
            self._process = self._popen(theirs.fileno(), machine, group_mb)
        self.pid = self._process.pid
        # also where nobody closes the executor
        self._end = weakref.finalize(self, _end, self.control, self._process)
        try:
            missing = self._answer()["missing"]
        except (OSError, FrameError, KeyError) as error:
            self._process.kill()
            _, text = self._process.communicate()
            self.control.close()
            raise ExecutorError(
                f"the fork server of {sys.executable} did not start: {text.decode().strip() or error}"
            ) from error
        if self._process.stderr:
            self._process.stderr.close()
        for limit, reason in missing.items():
            warnings.warn(
                f"AppWorld's process executor runs without this limit: {limit} ({reason})",
                RuntimeWarning,
                stacklevel=2,
            )

    def _popen(self, descriptor: int, machine: str, group_mb: int) -> subprocess.Popen[bytes]:
        # -s -S -P and no -I, which would ignore PYTHONHASHSEED: sets' order must not differ
        flags = ["-s", "-S", "-P", "-B", "-c", _BOOT]
        values = [Path(__file__).parent, descriptor, os.getpid(), machine, group_mb]
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, *flags, *map(str, values)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=kept | {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            pass_fds=(descriptor,),
            start_new_session=True,  # the terminal's Ctrl-C is the host's business
        )

    def start(self, memory_mb: int) -> tuple[int, socket.socket]:
        """Fork a session; its number and the channel to it."""
        with self._exchange():
            self.control.sendall(pack({"do": "start", "memory_mb": memory_mb}))
            data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 12, 1, _CLOSE_ON_EXEC)
            self._lines.feed(data)
            answer = self._answer()
        if not descriptors:
            raise ExecutorError(f"no further session could be started: {answer.get('error')}")
        return answer["number"], socket.socket(fileno=descriptors[0])

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """One request and its answer; the connection is closed where they may not belong together."""
        with self._lock:
            try:
                yield
            except BaseException:  # Ctrl-C too: the next answer would be another request's
                self.control.close()
                raise

    def interrupt(self, number: int) -> None:
        """SIGINT to a session; pending there when this returns."""
        self._request({"do": "interrupt", "number": number})

    def stop(self, number: int) -> str:
        """End a session; why the server had ended it before, or an empty string."""
        return str(self._request({"do": "stop", "number": number})["why"])

    def pids(self) -> dict[int, int]:
        """Process ids of the sessions, by number."""
        return {int(number): pid for number, pid in self._request({"do": "pids"}).items()}

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._exchange():
            self.control.sendall(pack(request))
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        while (line := self._lines.next()) is None:
            data = self.control.recv(1 << 16)
            if not data:
                raise ConnectionError("the fork server is gone")
            self._lines.feed(data)
        return unpack(line)

    def close(self) -> None:
        """End it and its sessions."""
        self._end()

    def disown(self) -> None:
        """In a process forked from the host: let go without ending it."""
        self.control.close()
        self._process.returncode = 0


def _end(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
