"""Rows of figures, as a table or as JSON."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.timing import Samples


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: ours, and the peer's in the same unit where it has one (``peer_key``)."""

    name: str
    unit: str
    ours: Samples
    peer_key: str = ""
    peer: Samples | None = None

    @property
    def ratio(self) -> float | None:
        """How many times better our best is than the peer's."""
        if self.peer is None:
            return None
        ratio = self.peer.best / self.ours.best
        return 1 / ratio if self.ours.higher_is_better else ratio


def machine() -> str:
    """Processor, number of cores and Python version."""
    return f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(title: str, peer_name: str, rows: list[Row]) -> Table:
    """Best and median of all rows; the peer's columns only where it was measured."""
    with_peer = any(row.peer is not None for row in rows)
    made = Table(title=title, title_justify="left")
    made.add_column("measure")
    made.add_column("unit")
    for name in ("best", "median") + ((peer_name, "its median", "ratio") if with_peer else ()):
        made.add_column(name, justify="right")
    for row in rows:
        cells = [row.name, row.unit, *_figures(row.ours)]
        if with_peer:
            cells += _figures(row.peer)
            cells.append(
                ""
                if row.ratio is None
                else f"{row.ratio:,.3g}x"
                if row.ratio < 100
                else f"{row.ratio:,.0f}x"
            )
        made.add_row(*cells)
    return made


def as_dict(row: Row) -> dict[str, Any]:
    return {
        "measure": row.name,
        "unit": row.unit,
        "ours": _sample_dict(row.ours),
        "peer": None if row.peer is None else _sample_dict(row.peer),
        "ratio": row.ratio,
    }


def _figures(samples: Samples | None) -> list[str]:
    return ["", ""] if samples is None else [_figure(samples.best), _figure(samples.median)]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _sample_dict(samples: Samples) -> dict[str, Any]:
    return {"best": samples.best, "median": samples.median, "all": samples.values}
