"""The env server: cost and latency of steps over sockets, beside OpenEnv's own server.

    python -m benchmarks.server                                   # ours alone
    python -m benchmarks.server --peer-python VENV/bin/python     # beside OpenEnv (pip install openenv)

Clients are light WebSockets without compression, all in this process. Steps per second and latency are wall
time and depend on what else the machine does; CPU seconds of the server do far less.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import uvloop
from rich.console import Console

from agent_envs.group.wire import PATH, PROTOCOL_VERSION, pack, unpack
from benchmarks.light_client import LightClient, framed
from benchmarks.report import Row, machine, table
from benchmarks.serving import HUB, children, served
from benchmarks.timing import Samples, process_cpu_seconds, resident_kb
from benchmarks.trivial import ENV_ID

SESSIONS, REPETITIONS = (1, 16, 64), 3
STEPS = 3_000  # of all sessions together, in one repetition
FRAME = 16  # replicas in a group frame
GROUPS = {ENV_ID: "step", "AgentEnv/ALFWorld-v0": "look", "AgentEnv/Sokoban-v0": "up"}
SERVED = f"benchmarks.trivial:{','.join(GROUPS)}"
console = Console()


@dataclass(frozen=True)
class Speech:
    """What a client says: messages to begin with, then one a step. Each message has one answer.

    Args:
        replicas: steps of replicas in one message.
        read: an answer's content; raises where it is an error.
    """

    url: str
    opening: tuple[str | bytes, ...]
    step: Callable[[int], str | bytes]
    read: Callable[[Any], Any]
    replicas: int = 1


def openenv(url: str) -> Speech:
    def read(answer: Any) -> Any:
        message = json.loads(answer)
        if message["type"] != "observation":
            raise RuntimeError(answer)
        return message

    return Speech(
        f"{url}/ws",
        (json.dumps({"type": "reset", "data": {"seed": 0}}),),
        lambda number: json.dumps({"type": "step", "data": {"text": "step"}}),
        read,
    )


def frames(url: str, env_id: str, replicas: int) -> Speech:
    """Our own group frames."""
    indices = list(range(replicas))
    options = {"max_steps": None}
    start = {"seed": 0, "options": {}, "indices": indices}
    actions = [GROUPS[env_id]] * replicas

    def read(answer: Any) -> Any:
        message = unpack(answer)
        if message["type"] != "result":
            raise RuntimeError(message)
        return message

    return Speech(
        url + PATH,
        (
            pack({"id": 1, "type": "hello", "version": PROTOCOL_VERSION}),
            pack(
                {"id": 2, "type": "open", "env": env_id, "options": options, "num_envs": replicas}
            ),
            pack({"id": 3, "type": "group_reset", "starts": [start]}),
        ),
        lambda number: pack(
            {"id": 4 + number, "type": "group_step", "indices": indices, "actions": actions}
        ),
        read,
        replicas,
    )


@dataclass(frozen=True)
class Load:
    """What one repetition measured: replica steps a second, seconds of each message, server CPU a step."""

    rate: float
    seconds: list[float]
    cpu: float

    def late(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent)) * 1e3


@asynccontextmanager
async def _connected(speech: Speech, sessions: int) -> AsyncIterator[list[LightClient]]:
    """So many sessions that have begun."""
    clients = []
    try:
        for _ in range(sessions):
            clients.append(await LightClient.connect(speech.url))
            for message in speech.opening:
                speech.read(await clients[-1].ask(framed(message)))
        yield clients
    finally:
        for client in clients:
            client.close()


async def closed_loop(speech: Speech, sessions: int, pids: Sequence[int]) -> Load:
    """Each session sends its next step as soon as the last one is answered."""
    found: list[float] = []
    steps = STEPS // sessions
    frames = [framed(speech.step(number)) for number in range(steps)]

    async def run(client: LightClient) -> Any:
        for frame in frames:
            begun = time.perf_counter()
            answer = await client.ask(frame)
            found.append(time.perf_counter() - begun)
        return answer

    async with _connected(speech, sessions) as clients:
        cpu, begun = _cpu(pids), time.perf_counter()
        last = await asyncio.gather(*map(run, clients))
        taken, cpu = time.perf_counter() - begun, _cpu(pids) - cpu
        for answer in last:
            speech.read(answer)
    total = len(found) * speech.replicas
    return Load(total / taken, found, cpu / total)


async def open_loop(speech: Speech, sessions: int, rate: float) -> list[float]:
    """Steps at fixed times, ``rate`` a second in all; a late answer counts from when it was due."""
    found: list[float] = []
    frames = [framed(speech.step(number)) for number in range(STEPS // sessions)]

    async def run(client: LightClient, offset: float) -> None:
        for number, frame in enumerate(frames):
            due = start + offset + number * sessions / rate
            await asyncio.sleep(due - time.perf_counter())
            await client.ask(frame)
            found.append(time.perf_counter() - due)

    async with _connected(speech, sessions) as clients:
        start = time.perf_counter() + 0.05
        await asyncio.gather(*(run(client, i / rate) for i, client in enumerate(clients)))
    return found


async def resident(speech: Speech, sessions: int, pid: int) -> float:
    """MB of a worker with so many sessions open."""
    async with _connected(speech, sessions):
        return resident_kb(pid) / 1024


def _cpu(pids: Sequence[int]) -> float:
    return sum(map(process_cpu_seconds, pids))


def _times(loads: Sequence[Load], value: Callable[[Load], float], *, most: bool = False) -> Samples:
    return Samples([value(load) for load in loads], higher_is_better=most)


def session_rows(
    ours: Speech, pids: Sequence[int], peer: tuple[Speech, int] | None
) -> Iterator[Row]:
    """Sessions of one replica over OpenEnv's protocol; the two servers take turns."""
    for sessions in SESSIONS:
        loads: list[Load] = []
        others: list[Load] = []
        for _ in range(REPETITIONS):
            loads.append(uvloop.run(closed_loop(ours, sessions, pids)))
            if peer is not None:
                others.append(uvloop.run(closed_loop(peer[0], sessions, [peer[1]])))
        for name, unit, value, most in (
            ("server CPU", "us/step", lambda load: load.cpu * 1e6, False),
            ("throughput", "steps/s", lambda load: load.rate, True),
            ("p50", "ms", lambda load: load.late(50), False),
            ("p99", "ms", lambda load: load.late(99), False),
        ):
            yield Row(
                f"{sessions} sessions, {name}", unit, _times(loads, value, most=most), "OpenEnv",
                _times(others, value, most=most) if others else None,
            )  # fmt: skip


def saturation(rows: Sequence[Row], *, peer: bool = False) -> float:
    """Steps a second of 16 sessions that never wait; the median, since the best may be luck."""
    (row,) = (row for row in rows if row.name == "16 sessions, throughput")
    found = row.peer if peer else row.ours
    assert found is not None
    return found.median


def late(speech: Speech, rate: float) -> Samples:
    """The 99th percentile of 16 sessions at so many steps a second, in ms."""
    runs = [uvloop.run(open_loop(speech, 16, rate)) for _ in range(REPETITIONS)]
    return Samples([float(np.percentile(run, 99)) * 1e3 for run in runs])


def frame_rows(url: str, pids: Sequence[int]) -> Iterator[Row]:
    """Frames of a group against frames of one replica."""
    for env_id in GROUPS:
        together: list[Load] = []
        alone: list[Load] = []
        for _ in range(REPETITIONS):
            together.append(uvloop.run(closed_loop(frames(url, env_id, FRAME), 1, pids)))
            alone.append(uvloop.run(closed_loop(frames(url, env_id, 1), 1, pids)))
        for name, unit, value, most in (
            ("replica steps", "1/s", lambda load: load.rate, True),
            ("server CPU", "us/step", lambda load: load.cpu * 1e6, False),
        ):
            yield Row(
                f"{env_id}: {name}", unit, _times(together, value, most=most), "frames of one",
                _times(alone, value, most=most),
            )  # fmt: skip


def main(
    peer_python: Annotated[
        Path | None, typer.Option(help="Interpreter of a virtual environment with openenv 0.10.")
    ] = None,
) -> None:
    """Print the tables."""
    command = (*HUB, "serve", "--envs", SERVED, "--port", "0", "--json", "--log-level", "ERROR")
    with served(command) as server:
        url, pids = server["url"].replace("http", "ws", 1), children(server["pid"])
        ours = openenv(f"{url}/envs/{ENV_ID.partition('/')[2]}")
        if peer_python is None:
            rows = list(session_rows(ours, pids, None))
        else:
            with served(
                (str(peer_python), str(Path(__file__).with_name("openenv_peer.py")))
            ) as peer:
                speech = openenv(f"ws://127.0.0.1:{peer['port']}")
                rows = list(session_rows(ours, pids, (speech, peer["pid"])))
                half = saturation(rows, peer=True) / 2
                rows.append(
                    Row(
                        "16 sessions at half of OpenEnv's rate, p99", "ms", late(ours, half), "OpenEnv",
                        late(speech, half),
                    )
                )  # fmt: skip
                memory = uvloop.run(resident(speech, SESSIONS[-1], peer["pid"]))
                console.print(f"OpenEnv's server with {SESSIONS[-1]} sessions: {memory:.0f} MB")
        rate = saturation(rows) / 2
        with served((sys.executable, str(Path(__file__).with_name("echo_peer.py")))) as echo:
            floor = late(openenv(f"ws://127.0.0.1:{echo['port']}"), rate)
        console.print(
            f"A bare uvicorn socket at half our rate: p99 {floor.best:.1f} ms, median {floor.median:.1f}"
        )
        rows.append(Row("16 sessions at half that rate, p99", "ms", late(ours, rate)))
        held = uvloop.run(resident(ours, SESSIONS[-1], pids[0]))
        rows.append(
            Row(f"{SESSIONS[-1]} sessions, resident memory of a worker", "MB", Samples([held]))
        )
        console.print(table(f"OpenEnv's protocol, {machine()}", "OpenEnv", rows))
        console.print(
            table(f"Group frames of {FRAME}", "frames of one", list(frame_rows(url, pids)))
        )


if __name__ == "__main__":
    typer.run(main)
