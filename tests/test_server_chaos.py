"""Clients and workers die at random, garbage comes in: no wrong byte, no leaked session.

``AGENT_ENVS_CHAOS_SECONDS=600 AGENT_ENVS_CHAOS_SESSIONS=64 pytest tests/test_server_chaos.py`` is the
long form.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the server needs the extra server")

import agent_envs
from agent_envs.group.remote import Remote
from tests import served  # noqa: F401 - registers the test environments here too
from tests.serving import Served

SECONDS = float(os.environ.get("AGENT_ENVS_CHAOS_SECONDS", "6"))
SESSIONS = int(os.environ.get("AGENT_ENVS_CHAOS_SESSIONS", "8"))
TURNS = 8


def episode(group, seed: int, disturb) -> list:
    seen = [group.reset(seed=seed)[0]]
    for turn in range(TURNS):
        disturb()
        observations, _, _, truncated, infos = group.step([f"{turn}{i}" for i in range(4)])
        seen.append((observations, truncated.tolist(), infos["steps"].tolist()))
    return seen


class Client(threading.Thread):
    """Plays episode after episode over a connection that it cuts now and then."""

    def __init__(self, url: str, number: int, end: float) -> None:
        super().__init__(daemon=True)
        self._url, self._end, self._draw = url, end, random.Random(number)
        self.episodes, self.wrong = 0, []

    def run(self) -> None:
        group = agent_envs.make_group("Test/Toy-v0", 2, 2, backend=Remote(self._url, checkpoint=3))
        local = agent_envs.make_group("Test/Toy-v0", 2, 2)

        def disturb() -> None:
            link = group.backend._shards[0].link._socket
            if link is not None and self._draw.random() < 0.1:
                with suppress(OSError):  # its worker was killed meanwhile
                    link.socket.shutdown(socket.SHUT_RDWR)

        while time.monotonic() < self._end:
            seed = self._draw.randrange(1000)
            found = episode(group, seed, disturb)
            if found != episode(local, seed, lambda: None):
                self.wrong.append((found, group.step([None] * 4)[4].get("error")))
            self.episodes += 1
        if self._draw.random() < 0.5:
            group.close()
        else:
            group.backend._shards[0].link.drop()  # a client that is gone without a word


def garbage(port: int, draw: random.Random, kept: list[socket.socket]) -> None:
    """Bytes that are no HTTP, and half-open connections that stay."""
    one = socket.create_connection(("127.0.0.1", port))
    try:
        one.sendall(draw.randbytes(draw.randrange(1, 200)))
    except OSError:
        return
    kept.append(one)


def test_chaos():
    draw = random.Random(0)
    with Served("--workers", "2", envs="tests.served:Test/Toy-v0") as server:
        end = time.monotonic() + SECONDS
        clients = [Client(server.url, number, end) for number in range(SESSIONS)]
        for client in clients:
            client.start()
        kept: list[socket.socket] = []
        kills = 0
        while time.monotonic() < end:
            time.sleep(1.5)
            garbage(server.started["port"], draw, kept)
            workers = server.workers()
            if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
                kills += 1
        for client in clients:
            client.join(90)
        assert kills
        assert not any(client.is_alive() for client in clients)
        wrong = [one for client in clients for one in client.wrong]
        played = sum(client.episodes for client in clients)
        print(f"{played} episodes, {kills} kills, {len(wrong)} wrong")
        assert wrong == []
        assert all(client.episodes for client in clients)
        deadline = time.monotonic() + 20
        while server.metric("sessions") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert server.metric("sessions") == 0
        assert server.get("/health")[0] == 200
        assert len(server.workers()) == 2
        for one in kept:
            one.close()
