"""Learning curves of one or more runs: ``python -m trainers.trl_adapter.plot RUN [RUN ...]``."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_envs.core.errors import (
    AgentEnvError,
    DataError,
    MissingExtra,
    OptionError,
    one_of,
    positive,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_runs", "read_metrics"]

METRICS_FILE = "metrics.jsonl"
CURVES_FILE = "curves.png"
DEFAULT_METRICS = ("success_rate", "eval_success_rate")
INTERVALS = {"eval_success_rate": "eval_interval"}  # metric -> key of its [low, high]
AXES = ("step", "update")
NOT_METRICS = {*AXES, *INTERVALS.values()}
FORMATS = (".png", ".pdf", ".svg")
STYLES = ("-", "--", ":", "-.")  # the ten colours come again with another style

_log = logging.getLogger(__name__)


class Curve(NamedTuple):
    """One metric of one run, by ascending x; low and high are NaN where there is no interval."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def plot_runs(
    runs: Sequence[Path],
    out: Path,
    metrics: Sequence[str] = (),
    window: int = 5,
    x: str = "step",
) -> Path:
    """Draw one panel per metric with one line per run into ``out`` (png, pdf or svg); returns it.

    ``runs`` are run folders or metrics files. ``metrics`` defaults to those of ``DEFAULT_METRICS`` that the
    runs have. Each value is drawn lightly, with the mean of the last ``window`` values on top. A metric
    with an interval is drawn as it is, with the interval as a band: a mean of several values would not lie
    where the band says. A resumed run logs steps again; the last row of a step counts.

    DataError for a run that is absent or empty, OptionError for a metric, axis or format that is unknown.
    """
    out = Path(out)
    positive("window", window)
    one_of("x", x, AXES)
    one_of("format", out.suffix.lower(), FORMATS)
    files = list(dict.fromkeys(metrics_file(run).resolve() for run in runs))
    if not files:
        raise OptionError("runs must hold at least one run folder, got none")
    rows = dict(zip(_names(files), [read_metrics(file) for file in files], strict=True))
    chosen = _chosen(metrics, [row for run in rows.values() for row in run], x)
    figure = _figure(len(chosen))
    for axes, metric in zip(figure.axes, chosen, strict=True):
        curves = {name: _curve(run, metric, x) for name, run in rows.items()}
        _draw(axes, metric, curves, window)
        axes.set_xlabel(x)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return out


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a run folder's ``metrics.jsonl``, or of the file itself.

    A line that is no JSON object is left out with a warning: the last one may be torn, and so may be the
    one at which a resumed run went on. DataError if there is no file or no row.
    """
    file = metrics_file(path)
    rows = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            _log.warning("%s, line %d: skipped, not a whole JSON object", file, number)
    if not rows:
        raise DataError(f"{file}: no rows yet ({file.stat().st_size} bytes)")
    return rows


def metrics_file(run: str | Path) -> Path:
    """The metrics file of a run folder, or the file itself; DataError that lists what is there instead."""
    run = Path(run)
    file = run / METRICS_FILE if run.is_dir() else run
    if file.is_file():
        return file
    place = run
    while not place.is_dir() and place != place.parent:
        place = place.parent
    found = sorted(path.parent.name for path in place.glob(f"*/{METRICS_FILE}"))
    if not found and run.is_dir():
        found = sorted(path.name for path in run.iterdir())
    what = f"no {METRICS_FILE} in {run}" if run.is_dir() else f"no such run: {run}"
    kind = "runs" if any((place / name / METRICS_FILE).is_file() for name in found) else "files"
    raise DataError(f"{what}; {kind} in {place}: {_listed(found)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code: 2 for a wrong call, with one line that says why."""
    options = _parser().parse_args(arguments)
    try:
        first = metrics_file(options.runs[0])
        out = options.out or first.with_name(CURVES_FILE)
        written = plot_runs(options.runs, out, options.metric, options.window, options.x)
    except (AgentEnvError, OSError) as error:
        sys.stderr.write(f"plot: {error}\n")
        return 2
    sys.stdout.write(f"{written}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.trl_adapter.plot",
        description="Draw the learning curves of one or more runs, one panel per metric.",
        epilog="example, two algorithms side by side:\n"
        "  python -m trainers.trl_adapter.plot runs/gigpo runs/grpo \\\n"
        "      --metric success_rate kl --window 10 --out compare.png\n\n"
        "An unknown metric is answered with those that the runs have.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=Path,
        help=f"run folder with a {METRICS_FILE}, or that file",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help=f"picture to write: .png, .pdf or .svg (default: {CURVES_FILE} in the first run)",
    )
    parser.add_argument(
        "--metric",
        nargs="+",
        default=(),
        help=f"what to draw, after the runs (default: {' and '.join(DEFAULT_METRICS)}, where logged)",
    )
    parser.add_argument(
        "--window", type=int, default=5, help="values per moving average (default: 5; 1: none)"
    )
    parser.add_argument("--x", choices=AXES, default="step", help="x axis (default: step)")
    return parser


def _chosen(metrics: Sequence[str], rows: Sequence[dict[str, Any]], x: str) -> list[str]:
    """The metrics to draw, each once; OptionError unless each is in some row that has x."""
    rows = [row for row in rows if _number(row.get(x)) is not None]
    if not rows:
        raise OptionError(
            f"no row has a number for {x!r}; other x axes: {', '.join({*AXES} - {x})}"
        )
    known = sorted({key for row in rows for key in row if _number(row[key]) is not None})
    known = [key for key in known if key not in NOT_METRICS]
    for metric in metrics:
        if metric not in known:
            near = get_close_matches(metric, known, n=len(known), cutoff=0.0)
            raise OptionError(f"unknown metric {metric!r}; these runs have: {_listed(near)}")
    chosen = [*dict.fromkeys(metrics)] or [name for name in DEFAULT_METRICS if name in known]
    if not chosen:
        wanted = " or ".join(DEFAULT_METRICS)
        raise OptionError(f"no row has {wanted}; name a metric of these runs: {_listed(known)}")
    return chosen


def _curve(rows: Sequence[dict[str, Any]], metric: str, x: str) -> Curve:
    points: dict[float, tuple[float, float, float]] = {}
    for row in rows:
        at, value = _number(row.get(x)), _number(row.get(metric))
        if at is not None and value is not None:
            points[at] = (value, *_interval(row.get(INTERVALS.get(metric, ""))))
    columns = [(at, *points[at]) for at in sorted(points)]
    return Curve(*np.array(columns, np.float64).reshape(-1, 4).T)


def _number(value: object) -> float | None:
    """``value`` as a float, or None unless it is a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _interval(value: object) -> tuple[float, float]:
    """(low, high), or NaN twice unless ``value`` is a pair of numbers."""
    if isinstance(value, list) and len(value) == 2:
        low, high = map(_number, value)
        if low is not None and high is not None:
            return low, high
    return math.nan, math.nan


def _moving_average(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """The mean of the last ``window`` values up to each one (of fewer at the start)."""
    return np.array([values[max(0, i + 1 - window) : i + 1].mean() for i in range(len(values))])


def _figure(panels: int) -> Figure:
    """A figure of its own, apart from pyplot's global state, with panels side by side, three per line."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots", "train") from None
    across = min(panels, 3)
    down = math.ceil(panels / across)
    figure = Figure(figsize=(6 * across, 4 * down), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for panel in range(panels):
        figure.add_subplot(down, across, panel + 1)
    return figure


def _draw(axes: Axes, metric: str, curves: dict[str, Curve], window: int) -> None:
    exact = any(np.isfinite(curve.low).any() for curve in curves.values())
    for index, (name, curve) in enumerate(curves.items()):  # a run looks the same in all panels
        if not len(curve.x):
            continue
        look: dict[str, Any] = {"color": f"C{index % 10}", "linestyle": STYLES[index // 10 % 4]}
        if exact:
            axes.fill_between(curve.x, curve.low, curve.high, color=look["color"], alpha=0.15, lw=0)
        elif window > 1:
            axes.plot(curve.x, curve.y, **look, alpha=0.3, linewidth=1)
        line = curve.y if exact else _moving_average(curve.y, window)
        mark = "o" if exact or len(curve.x) == 1 else ""  # a line of one point is invisible
        axes.plot(curve.x, line, **look, marker=mark, markersize=4, label=_label(name))
    title = metric.replace("_", " ")
    axes.set_ylabel(title)
    if exact:
        axes.set_title(f"{title} with interval")
    elif window > 1:
        axes.set_title(f"{title}, mean of the last {window} values")
    else:
        axes.set_title(title)
    if metric.endswith("success_rate"):
        axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.3)
    axes.legend()


def _label(name: str) -> str:
    """``name`` as matplotlib shows it: dollars are no formula, and a leading _ does not hide it."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def _names(files: Sequence[Path]) -> list[str]:
    """A run's folder name (or the name of a metrics file called otherwise), as long as makes it unique."""
    paths = [file.parent if file.name == METRICS_FILE else file for file in files]
    return [_shortest_tail(path, [other for other in paths if other != path]) for path in paths]


def _shortest_tail(path: Path, others: Sequence[Path]) -> str:
    for length in range(1, len(path.parts)):
        tail = path.parts[-length:]
        if all(other.parts[-length:] != tail for other in others):
            return "/".join(tail)
    return str(path)


def _listed(names: Sequence[str], most: int = 20) -> str:
    if not names:
        return "nothing"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


if __name__ == "__main__":
    sys.exit(main())
