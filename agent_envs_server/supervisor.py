"""The parent process: holds the listening socket, starts workers, replaces those that die."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from agent_envs.core.errors import MissingExtra, OptionError
from agent_envs.core.sockets import listen, url_of
from agent_envs_server import logs
from agent_envs_server.counters import new_board
from agent_envs_server.settings import Settings

logger = logging.getLogger("agent_envs_server.supervisor")
_POLL = 0.05  # seconds between looks at the workers
_STOP_WITHIN = 10.0  # seconds, before a worker is killed


def serve(settings: Settings, *, ready: Callable[[str], None], log_level: str = "INFO") -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        ready: gets the URL once connections are answered.

    Raises:
        OptionError: the address is taken or not this machine's, or a worker cannot start.
        MissingExtra: a part is not installed.
    """
    _check_installed()
    logs.set_up(log_level)
    Supervisor(settings, log_level).run(ready)


class Supervisor:
    def __init__(self, settings: Settings, log_level: str) -> None:
        self._settings, self._log_level = settings, log_level
        self._listener = listen(settings.host, settings.port)
        self._board = new_board(settings.workers)
        self._workers: list[subprocess.Popen[str]] = []
        self._stopping = False

    def run(self, ready: Callable[[str], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            self._workers = [self._start(row) for row in range(self._settings.workers)]
            for worker in self._workers:
                self._await_ready(worker)
            if not self._stopping:
                ready(url_of(self._listener))
            self._watch()
        finally:
            self._end()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, row: int) -> subprocess.Popen[str]:
        descriptors = (self._listener.fileno(), self._board)
        worker = subprocess.Popen(
            [sys.executable, "-m", "agent_envs_server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
        )
        message: dict[str, Any] = {
            "settings": self._settings.to_dict(), "worker": row, "log_level": self._log_level,
            "socket": descriptors[0], "counters": descriptors[1],
        }  # fmt: skip
        assert worker.stdin is not None
        with suppress(OSError):  # died at once: seen when it is waited for
            worker.stdin.write(json.dumps(message) + "\n")
            worker.stdin.flush()
        return worker

    def _await_ready(self, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        if worker.stdout.readline() != "ready\n" and not self._stopping:
            raise OptionError(
                f"a worker ended at its start (exit code {worker.wait()}); its error stands above"
            )

    def _watch(self) -> None:
        """Replace workers that die; one that keeps dying is replaced ever more slowly."""
        deaths, since = 0, time.monotonic()
        while not self._stopping:
            time.sleep(_POLL)
            if time.monotonic() - since > 10:
                deaths, since = 0, time.monotonic()
            for row, worker in enumerate(self._workers):
                if worker.poll() is None or self._stopping:
                    continue
                logger.error("worker died (exit code %s)", worker.returncode, extra={"worker": row})
                _close_pipes(worker)
                deaths += 1
                time.sleep(0 if deaths < 5 else 1)
                self._workers[row] = self._start(row)

    def _end(self) -> None:
        """Let workers tell their clients, then make sure that they are gone."""
        self._listener.close()
        for worker in self._workers:
            with suppress(OSError):
                worker.terminate()
        deadline = time.monotonic() + _STOP_WITHIN
        for worker in self._workers:
            try:
                worker.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            _close_pipes(worker)
        os.close(self._board)


def _close_pipes(worker: subprocess.Popen[str]) -> None:
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _check_installed() -> None:
    try:
        import msgpack  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
        import websockets  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f"the env server ({error.name})", "server") from error
