"""Many servers that start at once take different ports, and all answer (FIELD_CASES F074).

``python -m benchmarks.server_starts``
"""

from __future__ import annotations

import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.serving import HUB, served
from benchmarks.trivial import ENV_ID

console = Console()
COMMAND = (*HUB, "serve", "--envs", f"benchmarks.trivial:{ENV_ID}", "--port", "0", "--json",
           "--log-level", "ERROR")  # fmt: skip


def one_round(servers: int) -> tuple[int, float]:
    """Distinct ports whose server is healthy, and seconds until all were."""
    begun = time.perf_counter()
    with ExitStack() as stack, ThreadPoolExecutor(servers) as pool:
        started = list(pool.map(lambda _: stack.enter_context(served(COMMAND)), range(servers)))
        for server in started:
            with urllib.request.urlopen(f"{server['url']}/health", timeout=60) as answer:
                assert answer.status == 200
        return len({server["port"] for server in started}), time.perf_counter() - begun


def main(
    servers: Annotated[int, typer.Option(help="Servers at once.")] = 32,
    rounds: Annotated[int, typer.Option(help="How often.")] = 5,
) -> None:
    """Start them; exit code 1 where a port was taken twice."""
    for number in range(rounds):
        ports, seconds = one_round(servers)
        console.print(f"round {number}: {ports} ports of {servers} servers, {seconds:.0f} s")
        if ports != servers:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
