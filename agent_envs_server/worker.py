"""A worker process: ``python -m agent_envs_server.worker``, started by the supervisor.

Its settings come as one JSON line on standard input (so that no token shows in a process list); it says
``ready`` on standard output, and ends when standard input does: no worker outlives its supervisor.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from agent_envs_server import logs
from agent_envs_server.app import make_app
from agent_envs_server.counters import Counters
from agent_envs_server.settings import Settings

logger = logging.getLogger("agent_envs_server.worker")
GRACE = 5  # seconds that open requests get when the server stops


class Server(uvicorn.Server):
    """Says when it listens, and leaves Ctrl-C to the supervisor."""

    ready: int  # where to say it

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        signal.signal(signal.SIGTERM, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        os.write(self.ready, b"ready\n")
        os.close(self.ready)


def main() -> None:
    """Serve until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the supervisor decides
    ready = os.dup(1)
    os.dup2(
        2, 1
    )  # what environments print goes to the log, and never blocks in a pipe nobody reads
    message = json.loads(sys.stdin.readline())
    settings = Settings.from_dict(message["settings"])
    logs.set_up(message["log_level"])
    for module in settings.modules:
        importlib.import_module(module)
    counters = Counters(message["counters"], settings.workers, message["worker"])
    listener = socket.socket(fileno=message["socket"])
    config = uvicorn.Config(
        make_app(settings, counters),
        log_config=None,
        access_log=False,  # paths may hold a token
        lifespan="off",
        ws="websockets-sansio",
        ws_max_size=settings.limits.message,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE,
        server_header=False,
    )
    server = Server(config)
    server.ready = ready
    gc.collect()
    gc.set_threshold(700, 2, 100)
    gc.freeze()  # what is there now stays: looking through it would stop every session for milliseconds
    threading.Thread(target=_watch_parent, args=(server,), daemon=True).start()
    server.run(sockets=[listener])
    logger.info("worker stopped", extra={"worker": message["worker"]})
    logging.shutdown()
    os._exit(0)  # threads that hang in an environment must not keep the process


def _watch_parent(server: Server) -> None:
    sys.stdin.read()
    server.should_exit = True


if __name__ == "__main__":
    main()
