"""What this machine is, as Linux tells it; nothing is known elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def cpu_flags() -> frozenset[str]:
    """What the processor can do; empty where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore")
    except OSError:
        return frozenset()
    return frozenset(text.partition("flags")[2].partition("\n")[0].split())


def cpu_has_bfloat16() -> bool:
    """Does the processor compute in bfloat16 itself; others emulate it, eight times slower."""
    return bool(cpu_flags() & {"amx_bf16", "avx512_bf16"})


def available_ram(file: str | Path = "/proc/meminfo") -> float:
    """Bytes that can be had without swapping; infinite where the system does not say."""
    try:
        lines = Path(file).read_text(encoding="ascii").splitlines()
    except OSError:
        return float("inf")
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return float(found[0]) * 1024 if found else float("inf")
