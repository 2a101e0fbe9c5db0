"""One AppWorld environment server: a given URL, or a process of our own."""

from __future__ import annotations

import http.client
import json
import logging
import os
import subprocess
import tempfile
import threading
import time
from multiprocessing.connection import wait  # select() takes no descriptor above 1023
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent_envs.core.errors import OptionError, ServerError, ServerUnreachable
from agent_envs.core.sockets import LOOPBACK, listen, url_of
from agent_envs.envs.appworld.real.tasks import how_to_install

logger = logging.getLogger("agent_envs.appworld")
LONGEST_ANSWER = 64 << 20  # bytes
START_SECONDS = 120.0
_TRIES = 3
_ENDING = 0.5  # seconds between a process's last sign and its end
_LAUNCHER = Path(__file__).with_name("launcher.py")


class WorldLost(ServerError):
    """The server answers, but not for our world (it holds another, or it failed inside)."""


class Server:
    """Speaks the protocol of ``appworld serve environment`` 0.1.3.

    Args:
        url: of a server that runs already; it is never ended.

    Attributes:
        turn: held during a request.
        tenant: whose world it holds.

    Raises:
        OptionError: that is no URL of a server.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.turn = threading.Lock()
        self.tenant: object = None
        try:
            self._address = urlsplit(url)
            usable = self._address.scheme == "http" and self._address.hostname
            path = self._address.path.rstrip("/")
            self.place = self._address.hostname, self._address.port or 80, path
        except (ValueError, TypeError, AttributeError):  # no number, no text
            usable = None
        if not usable:
            raise OptionError(
                f"an AppWorld server's URL must look like http://127.0.0.1:8000, got {url!r:.200}"
            )

    def ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it answers.

        Raises:
            ServerUnreachable: it does not.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.ask("/", None, 5.0)
                break
            except ServerError as error:
                if time.monotonic() > deadline or not self.alive:
                    raise self._unreachable(str(error)) from error
            time.sleep(0.05)
        if self._address.hostname in LOOPBACK and _listens_everywhere(self._address.port or 80):
            logger.warning(
                "the AppWorld server at %s listens on all interfaces of this machine: whoever reaches it can "
                "run code here; with appworld_python it would listen on 127.0.0.1 only",
                self.url,
            )

    @property
    def alive(self) -> bool:
        """Whether it may still answer."""
        return True

    def recover(self) -> bool:
        """Make it usable again after a failure; whether a request may be tried once more at once."""
        return False

    def stop(self) -> None:
        """End it, if it is ours."""

    def ask(self, path: str, body: dict[str, Any] | None, seconds: float) -> Any:
        """The ``output`` of a POST (a GET without ``body``), within ``seconds`` by our own clock.

        Raises:
            WorldLost: HTTP 4xx or 5xx.
            ServerUnreachable: no answer, or none that can be read.
        """
        deadline = time.monotonic() + seconds
        host, port = self._address.hostname or "", self._address.port
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(
                "GET" if body is None else "POST", self._address.path.rstrip("/") + path, data,
                {"Content-Type": "application/json"},
            )  # fmt: skip
            response = connection.getresponse()
            content = _all_of(response, connection, deadline)
            if response.status >= 400:
                raise WorldLost(f"{self.url}{path}: HTTP {response.status} {content[:200]!r}")
            answer = json.loads(content)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            if isinstance(error, ServerError):
                raise
            raise self._unreachable(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if body is not None and (not isinstance(answer, dict) or "output" not in answer):
            raise self._unreachable(f"{path}: its answer has no output: {content[:100]!r}")
        return answer["output"] if body is not None else answer

    def _unreachable(self, why: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"no answer from the AppWorld server at {self.url} ({why}); start it with "
            "'appworld serve environment --port PORT --root ROOT', or give appworld_python"
        )


class OwnServer(Server):
    """A server that runs in the user's AppWorld environment; started at once, ready later.

    Args:
        python: interpreter of the environment that AppWorld is installed in.
        root: the folder that holds AppWorld's ``data``.
    """

    def __init__(self, python: str, root: str) -> None:
        # it runs in another folder; a bare name is looked up in PATH
        self._python = str(Path(python).absolute()) if os.sep in python else python
        self._root = root
        self._start()

    def _start(self) -> None:
        listener = listen("127.0.0.1", 0)
        super().__init__(url_of(listener))
        self._news, told = os.pipe()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would block it
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the user's own interpreter
                [self._python, str(_LAUNCHER), str(listener.fileno()), str(told), self._root],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._words,
                pass_fds=(listener.fileno(), told), cwd=self._root,
            )  # fmt: skip
        except OSError as error:
            self._forget()
            raise ServerUnreachable(_advice(self._python, self._root, str(error))) from error
        finally:
            os.close(told)
            listener.close()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ready(self, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        for attempt in range(_TRIES):
            if not wait([self._news], max(0.0, deadline - time.monotonic())):
                break
            if os.read(self._news, 100):  # it has our socket; else it has ended
                try:
                    super().ready(max(0.0, deadline - time.monotonic()))
                    return
                except ServerUnreachable as error:
                    why = f"{error}; {self._last_words()}"
                    self.stop()
                    raise ServerUnreachable(_advice(self._python, self._root, why)) from error
            why = self._last_words()
            self.stop()
            if attempt + 1 == _TRIES:
                raise ServerUnreachable(_advice(self._python, self._root, why))
            self._start()
        why = f"not ready after {seconds:g} s; {self._last_words()}"
        self.stop()
        raise ServerUnreachable(_advice(self._python, self._root, why))

    def recover(self) -> bool:
        try:
            self.process.wait(_ENDING)
            died = True
        except subprocess.TimeoutExpired:
            died = False  # it hangs, and would again
        self.stop()
        self._start()
        self.ready()
        return died

    def stop(self) -> None:
        """End our own process, and no other."""
        self.process.kill()
        self.process.wait()
        self._forget()

    def _forget(self) -> None:
        if self._news >= 0:
            os.close(self._news)
            self._words.close()
            self._news = -1

    def _unreachable(self, why: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"the AppWorld server that was started here ({self.url}) gave no answer that can be used "
            f"({why}): the code made it hang or ended it, or it failed"
        )

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read()[-600:].decode("utf-8", "replace").strip()


def _all_of(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float
) -> bytes:
    """The body; a server that drips is given up at the deadline, one that floods at 64 MB."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        left = deadline - time.monotonic()
        if left <= 0 or size > LONGEST_ANSWER:
            raise TimeoutError("its answer takes too long or is too large")
        if connection.sock is not None:
            connection.sock.settimeout(left)
    return b"".join(parts)


def _listens_everywhere(port: int) -> bool:
    """Whether something listens at 0.0.0.0:port (or [::]); False where the system does not tell."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        except OSError:
            continue
        for _, local, _, state, *_ in rows:
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port and not address.strip("0"):
                return True
    return False


def _advice(python: str, root: str, why: str) -> str:
    return (
        f"an AppWorld server could not be started with {python} ({why}). Make the environment and its "
        "data with:\n" + how_to_install(python, root)
    )
