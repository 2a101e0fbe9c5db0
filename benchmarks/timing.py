"""Repeated measurements: prepare (not counted), work (counted), best and median."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Environment of all subprocesses: numerical libraries must not start threads of their own."""


@dataclass(frozen=True, slots=True)
class Samples:
    """One figure per repetition, in the unit of the row that shows them."""

    values: list[float]
    higher_is_better: bool = False

    @property
    def best(self) -> float:
        return max(self.values) if self.higher_is_better else min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(slots=True)
class Clock(AbstractContextManager["Clock"]):
    """Adds up CPU seconds of this process and wall seconds over all ``with`` blocks."""

    cpu: float = 0.0
    wall: float = 0.0
    _start: tuple[float, float] = field(default=(0.0, 0.0), repr=False)

    def __enter__(self) -> Clock:
        self._start = time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        self.cpu += cpu - self._start[0]
        self.wall += wall - self._start[1]


def cpu_samples(
    prepare: Callable[[], T], work: Callable[[T], None], *, repetitions: int, per: float
) -> Samples:
    """CPU seconds of ``work(prepare())`` times ``per``; only ``work`` is counted.

    The garbage collector stays on, as it is in use; each repetition starts after a collection.
    """
    values = []
    for _ in range(repetitions):
        subject = prepare()
        gc.collect()
        with Clock() as clock:
            work(subject)
        values.append(clock.cpu * per)
    return Samples(values)


def resident_kb(pid: int | str = "self") -> float:
    """Resident memory of a process in KB, by default of this one (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def process_cpu_seconds(pid: int) -> float:
    """CPU seconds that another running process has used so far (Linux).

    The clock id is what ``clock_getcpuclockid(3)`` returns, which Python does not offer.
    """
    return time.clock_gettime((~pid << 3) | 2)
