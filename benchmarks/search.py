"""Search: group steps, one request for a group step against one per query, latency under concurrent clients.

``python -m benchmarks.search [--dense]``

Servers run in a process of their own. Latency is wall time and depends on what else the machine does; the
ratio is in CPU time of this process and of the server together.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated
from urllib.parse import urlsplit

import numpy as np
import typer
from rich.console import Console

import agent_envs
from agent_envs.envs.search import world
from agent_envs.retrieval.remote import RemoteRetriever
from benchmarks.games import rate
from benchmarks.report import Row, machine, table
from benchmarks.serving import HUB, served
from benchmarks.timing import Samples, process_cpu_seconds

GROUPS, SIZE = 16, 8
CLIENTS, REQUESTS = 64, 30
console = Console()


def retriever(kind: str) -> tuple[str, ...]:
    """The command of a server of the embedded passages."""
    return (*HUB, "retriever", "serve", "--embedded", kind, "--port", "0", "--json")


def queries(count: int) -> list[str]:
    tasks = world.questions()
    return [tasks[tasks.task_id("train", i % 1000)].text for i in range(count)]


def group_steps() -> Samples:
    """Replica steps per CPU second, all of them searches of different words."""
    actions = [f"<search>{text}</search>" for text in queries(GROUPS * SIZE)]

    group = agent_envs.make_group("AgentEnv/Search-v0", GROUPS, SIZE, max_steps=None)
    group.reset(seed=0)

    def work() -> int:
        group.step(actions)
        return GROUPS * SIZE

    return rate(work, 1.0)


def requests(url: str, pid: int) -> tuple[Samples, Samples]:
    """CPU seconds (client and server) for the searches of one group step: together, one by one."""
    client, asked = RemoteRetriever(url), queries(GROUPS * SIZE)
    client.check()

    def cost(work: object) -> float:
        assert callable(work)
        begun = time.process_time() + process_cpu_seconds(pid)
        work()
        return time.process_time() + process_cpu_seconds(pid) - begun

    def apart() -> None:
        for query in asked:
            client.search([query], 3)

    together = Samples([cost(lambda: client.search(asked, 3)) for _ in range(5)])
    return together, Samples([cost(apart) for _ in range(5)])


async def _client(host: str, port: int, asked: list[str], found: list[float]) -> None:
    """A client with one connection; written out, since a library's client costs more than our server.

    Its first request, which waits for all clients' connections, is not counted.
    """
    reader, writer = await asyncio.open_connection(host, port)
    for number, query in enumerate(asked):
        body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
        head = f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        begun = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer.split(b"\r\n", 1)[0], answer
        length = next(
            int(line.split(b":")[1])
            for line in answer.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        if number:
            found.append(time.perf_counter() - begun)
    writer.close()


async def _storm(url: str, count: int) -> list[float]:
    where, found = urlsplit(url), list[float]()
    asked = queries(CLIENTS * count)
    await asyncio.gather(
        *(
            _client(where.hostname or "", where.port or 0, asked[i::CLIENTS], found)
            for i in range(CLIENTS)
        )
    )
    return found


def latency(url: str, count: int) -> tuple[Samples, Samples, Samples]:
    """p50 and p99 in seconds, requests per second, with all clients asking at once."""
    middle, late, rates = [], [], []
    for _ in range(3):
        begun = time.perf_counter()
        found = asyncio.run(_storm(url, count))
        rates.append(len(found) / (time.perf_counter() - begun))
        middle.append(float(np.percentile(found, 50)))
        late.append(float(np.percentile(found, 99)))
    return Samples(middle), Samples(late), Samples(rates, higher_is_better=True)


def main(
    dense: Annotated[
        bool, typer.Option(help="The dense retriever too (needs the extra search).")
    ] = False,
) -> None:
    """Print the table."""
    rows = [Row("group of 16 x 8, a search each", "replica steps/CPU s", group_steps())]
    for kind in ("bm25", "dense") if dense else ("bm25",):
        with served(retriever(kind)) as server:
            url, pid = server["url"], server["pid"]
            together, apart = requests(url, pid)
            rows.append(
                Row(
                    f"{kind}: 128 searches of a step, one request",
                    "CPU s",
                    together,
                    "one by one",
                    apart,
                )
            )
            for name, unit, samples in zip(
                ("p50", "p99", "throughput"),
                ("s", "s", "requests/s"),
                latency(url, REQUESTS if kind == "bm25" else 4),
                strict=True,
            ):
                rows.append(Row(f"{kind}: {CLIENTS} clients, {name}", unit, samples))
    console.print(table(f"Search, {machine()}", "peer", rows))


if __name__ == "__main__":
    typer.run(main)
