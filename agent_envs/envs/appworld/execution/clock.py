"""Simulated time and seeded chance for a bare interpreter, installed before anything else uses them.

``datetime`` is taken in its Python form, which asks ``time.time``; so one clock answers everything.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_gmtime, _strftime, _asctime = time.gmtime, time.strftime, time.asctime


class Clock:
    """Seconds since the epoch: a start, one second per API call, and what was slept."""

    def __init__(self) -> None:
        self.start = 0.0
        self.passed = 0.0

    def time(self) -> float:
        return self.start + self.passed

    def set(self, now: str, passed: float) -> None:
        """Start at ``now`` (ISO 8601, UTC where it names no zone), ``passed`` seconds of it gone."""
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(now)
        self.start = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        self.passed = passed

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.passed += seconds


CLOCK = Clock()


def install_clock() -> None:
    """Replace the clocks of ``time`` by ours; ``datetime`` follows, if it was not imported yet."""
    # without the C forms the Python forms are imported
    for name in ("_datetime", "_zoneinfo"):
        sys.modules[name] = None  # type: ignore[assignment]
    now = CLOCK.time

    def broken_down(seconds: float | None = None) -> time.struct_time:
        return _gmtime(now() if seconds is None else seconds)

    def formatted(form: str, moment: tuple[int, ...] | time.struct_time | None = None) -> str:
        return _strftime(form, broken_down() if moment is None else moment)  # type: ignore[arg-type]

    def text(moment: tuple[int, ...] | time.struct_time | None = None) -> str:
        return _asctime(broken_down() if moment is None else moment)  # type: ignore[arg-type]

    def elapsed() -> float:
        return CLOCK.passed

    replaced = {
        "time": now,
        "time_ns": lambda: int(now() * 1e9),
        "gmtime": broken_down,
        "localtime": broken_down,  # the world's time zone is UTC
        "strftime": formatted,
        "asctime": text,
        "ctime": lambda seconds=None: text(broken_down(seconds)),
        "sleep": CLOCK.sleep,
    }
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        replaced[name] = elapsed
        replaced[f"{name}_ns"] = lambda: int(elapsed() * 1e9)
    for name, value in replaced.items():
        setattr(time, name, value)


def install_chance() -> None:
    """Let ``os.urandom`` and a ``Random()`` without a seed draw from one seeded stream."""
    import os
    import random

    stream = random.Random(0)
    plain = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        plain(self, stream.getrandbits(64) if a is None else a, version)

    os.urandom = random._urandom = stream.randbytes  # type: ignore[attr-defined]
    random.Random.seed = seed  # type: ignore[method-assign]
    import uuid  # after urandom is ours

    # without libuuid's generator, which reads the machine's clock and address
    vars(uuid).update(_generate_time_safe=None, _UuidCreate=None, _node=0x0100_0000_0001)
    _reseed.append(lambda value: plain(stream, value))


_reseed: list[Callable[[int], None]] = []


def seed_chance(value: int) -> None:
    """Start all chance of this process anew."""
    import random

    for start in _reseed:
        start(value)
    random.seed(value)
