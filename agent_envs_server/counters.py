"""Counters that all workers of a server share: a row each in one memory map, summed when read."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

GAUGES = ("sessions",)
COUNTERS = {  # name -> help text of the metric
    "sessions": "Open sessions.",
    "sessions_total": "Sessions opened.",
    "requests_total": "Requests answered.",
    "replica_steps_total": "Steps of replicas.",
    "errors_total": "Requests answered by an error.",
    "timeouts_total": "Calls that took longer than the limit.",
    "reaped_total": "Sessions closed because they were idle.",
    "refused_total": "Connections refused: token, origin or capacity.",
    "busy_seconds_total": "Seconds spent in environments.",
    "worker_starts_total": "Worker processes started.",
}
_COLUMNS = {name: i for i, name in enumerate(COUNTERS)}


def new_board(workers: int) -> int:
    """File descriptor of zeroed memory for ``workers`` rows; inherited by the workers."""
    size = workers * len(COUNTERS) * 8
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("agent-envs-counters")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class Counters:
    """One worker's row. Only its own worker writes a row, so no lock is needed.

    Args:
        descriptor: from :func:`new_board`.
        row: the worker's number.
    """

    def __init__(self, descriptor: int, workers: int, row: int) -> None:
        memory = mmap.mmap(descriptor, workers * len(COUNTERS) * 8)
        self._all = np.frombuffer(memory, np.float64).reshape(workers, len(COUNTERS))
        self._own = self._all[row]
        self.workers = workers
        for name in GAUGES:  # a predecessor that crashed left its open sessions here
            self._own[_COLUMNS[name]] = 0
        self.add("worker_starts_total")

    def add(self, name: str, amount: float = 1) -> None:
        self._own[_COLUMNS[name]] += amount

    def total(self, name: str) -> float:
        return float(self._all[:, _COLUMNS[name]].sum())

    def prometheus(self) -> str:
        """Sums over all workers, in Prometheus' text format."""
        lines = ["# HELP agent_envs_workers Worker processes.", "# TYPE agent_envs_workers gauge"]
        lines.append(f"agent_envs_workers {self.workers}")
        for name, text in COUNTERS.items():
            kind = "gauge" if name in GAUGES else "counter"
            value = self.total(name)
            lines += [
                f"# HELP agent_envs_{name} {text}",
                f"# TYPE agent_envs_{name} {kind}",
                f"agent_envs_{name} {value:.6f}" if value % 1 else f"agent_envs_{name} {value:.0f}",
            ]
        return "\n".join(lines) + "\n"
