"""Servers that are lent to episodes: each holds one world at a time, and episodes may be more."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from agent_envs.core.errors import OptionError
from agent_envs.envs.appworld.real.server import OwnServer, Server
from agent_envs.envs.appworld.real.tasks import check_installation

_making = threading.Lock()
_shared: dict[tuple[Any, ...], Server] = {}  # each given server once, as it holds one world


class Pool:
    """Lends servers to holders, the one that was not used for longest first.

    A holder whose server was lent on has lost its world there, and finds out by ``fresh``.

    Args:
        make: the servers; called when the first is wanted.
    """

    def __init__(self, make: Callable[[], Iterable[Server]]) -> None:
        self._make = make
        self._free = threading.Condition()
        self._holders: dict[Server, Any] = {}  # the one used last at the end
        self._busy: set[Server] = set()

    @contextmanager
    def lent(self, holder: object) -> Iterator[tuple[Server, bool]]:
        """A server for one request, and whether its world is not (or no more) this holder's."""
        with self._free:
            self._open()
            server = self._pick(holder)
            while server is None:  # all are at work in other threads
                self._free.wait()
                server = self._pick(holder)
            fresh = self._holders.pop(server) is not holder
            self._holders[server] = holder
            self._busy.add(server)
        try:
            with server.turn:  # pools with different lists of URLs may share it
                fresh = fresh or server.tenant is not holder
                server.tenant = None  # nobody knows what it holds if this fails
                yield server, fresh
                server.tenant = holder
        except BaseException:
            with self._free:
                self._holders[server] = None
            raise
        finally:
            with self._free:
                self._busy.discard(server)
                self._free.notify_all()

    def leave(self, holder: object) -> None:
        """The holder needs its server no more."""
        with self._free:
            for server, held in list(self._holders.items()):
                if held is holder:
                    self._holders = {server: None, **_without(self._holders, server)}

    def close(self) -> None:
        with self._free:
            for server in self._holders:
                server.stop()
            self._holders.clear()

    def _open(self) -> None:
        if not self._holders:
            servers: list[Server] = []
            try:
                for server in self._make():
                    servers.append(server)  # one by one: a later one may fail to start
                for server in servers:
                    server.ready()
            except BaseException:
                for server in servers:
                    server.stop()
                raise
            self._holders = dict.fromkeys(servers)

    def _pick(self, holder: object) -> Server | None:
        idle = [server for server in self._holders if server not in self._busy]
        return next((s for s in idle if self._holders[s] is holder), idle[0] if idle else None)


def _without(holders: dict[Server, Any], server: Server) -> dict[Server, Any]:
    return {other: held for other, held in holders.items() if other is not server}


def pool_of(urls: tuple[str, ...], python: str | None, root: str, servers: int) -> Pool:
    """The process's pool with these servers: given URLs, or ``servers`` processes of our own."""
    with _making:  # a cache alone lets two threads make two
        return _pool_of(urls, python, root, servers)


@lru_cache(maxsize=16)
def _pool_of(urls: tuple[str, ...], python: str | None, root: str, servers: int) -> Pool:
    if bool(urls) == (python is not None):
        raise OptionError(
            "backend='appworld' needs either appworld_python (the interpreter of the virtual environment "
            "that AppWorld is installed in) or appworld_urls (servers that run already)"
        )

    given = [_shared.setdefault(server.place, server) for server in map(Server, urls)]
    if len(set(given)) < len(given):
        raise OptionError(
            f"appworld_urls name a server twice, which holds one world: {', '.join(urls)}"
        )

    def make() -> Iterable[Server]:
        if python is None:
            return given
        check_installation(python, root)
        return (OwnServer(python, root) for _ in range(servers))

    pool = Pool(make)
    atexit.register(pool.close)
    return pool
