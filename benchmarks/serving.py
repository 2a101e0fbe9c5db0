"""Servers in processes of their own, for benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.timing import ONE_THREAD

ROOT = Path(__file__).resolve().parent.parent
HUB = (sys.executable, "-c", "from agent_envs.cli.main import main; main()")


@contextmanager
def served(command: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Run a server on one thread until the block ends; the line of JSON that it starts with."""
    process = subprocess.Popen(
        list(command), stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with code {process.wait(20)}")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def children(pid: int) -> list[int]:
    """Process ids of a process's children (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
