"""The learning proof: algorithms lift a model's success on held-out tasks, over seeds.

    python -m benchmarks.learning                     # part 1: seven algorithms, a game and a household
    python -m benchmarks.learning --part 2            # GiGPO against GRPO on long episodes; SmolLM2, LoRA
    python -m benchmarks.learning --tasks number_line --algorithms gigpo grpo --seeds 0
    python -m benchmarks.learning --report docs       # tables and curves of what is there

Each run has a folder of its own, from a YAML in ``examples/cpu``; the runs of a task and seed share their
warm-started model. Finished runs are kept, broken ones go on from their last checkpoint, so the command can
be stopped at any time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress

from agent_envs.evaluation import wilson_interval
from benchmarks.report import machine
from benchmarks.timing import ONE_THREAD
from trainers.trl_adapter.plot import read_metrics

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "cpu"
ALGORITHMS = ("gigpo", "grpo", "ppo", "dapo", "gspo", "rloo", "reinforce_pp")

# the default clip range (3e-4, 4e-4) is meant for replies of hundreds of tokens; these have about five
OWN = {"gspo": ("--loss.clip_low", "0.03", "--loss.clip_high", "0.04")}
SPLITS = ("valid_seen", "valid_unseen")


@dataclass(frozen=True)
class Task:
    """What is learned, from ``examples/cpu/NAME.yaml``."""

    title: str
    part: int
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    warm: str | None  # the task whose warm-started models it takes
    exam: tuple[str, ...] = ()  # splits of which every task is played three times, before and after


TASKS = {
    "number_line": Task("NumberLine, 0 to 5", 1, ALGORITHMS, (0, 1, 2), "number_line"),
    "household": Task(
        "Household, one object to its place", 1, ALGORITHMS, (0, 1, 2), "household", SPLITS
    ),
    "household_long": Task(
        "Household, long episodes", 2, ("gigpo", "grpo"), (0, 1, 2, 3, 4), "household"
    ),
    "smollm2": Task("SmolLM2-135M with LoRA, NumberLine", 2, ("gigpo",), (0,), None),
}
MARKS = "<!-- results -->", "<!-- end -->"
console = Console(stderr=True)


@dataclass(frozen=True)
class Job:
    """One run: a task, an algorithm, a seed."""

    task: str
    algorithm: str
    seed: int
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / self.task / f"{self.algorithm}-{self.seed}"

    @property
    def warm(self) -> Path | None:
        task = TASKS[self.task].warm
        return self.out / task / f"warm-{self.seed}" if task else None

    @property
    def exams(self) -> dict[Path, Path]:
        """Where the exams before and after lie -> the model that sits them."""
        if not TASKS[self.task].exam or self.warm is None:
            return {}
        return {
            self.warm.with_suffix(".exam.json"): self.warm,
            self.folder / "exam.json": self.folder / "final",
        }

    def exam_command(self, found: Path, model: Path) -> list[str]:
        return [
            "benchmarks.exam", str(self.config), str(model), "--out", str(found),
            "--splits", *TASKS[self.task].exam,
        ]  # fmt: skip

    @property
    def config(self) -> Path:
        return EXAMPLES / f"{self.task}.yaml"

    @property
    def done(self) -> bool:
        return (self.folder / "final").is_dir()

    def warm_command(self) -> list[str]:
        return [
            "trainers.trl_adapter.sft", "--config", str(EXAMPLES / f"{TASKS[self.task].warm}.yaml"),
            "--run.seed", str(self.seed), "--output_dir", str(self.warm),
        ]  # fmt: skip

    def command(self) -> list[str]:
        words = [
            "trainers.trl_adapter", "--config", str(self.config), "--algorithm", self.algorithm,
            "--run.seed", str(self.seed), "--output_dir", str(self.folder), *OWN.get(self.algorithm, ()),
        ]  # fmt: skip
        if self.warm is not None:
            words += ["--model.path", str(self.warm), "--warm_start.episodes", "0"]
        resumable = any(self.folder.glob("checkpoint-*"))
        return [*words, "--resume", "latest"] if resumable else words


def start(words: list[str], log: Path) -> None:
    """Run a module on one thread; its output goes to ``log``. RuntimeError where it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    with log.open("a") as file:
        code = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *words],
            cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    if code:
        raise RuntimeError(f"{' '.join(words)} ended with code {code}; see {log}")


def stages(jobs: list[Job]) -> Iterator[tuple[str, list[tuple[list[str], Path]]]]:
    """What is still to do, in order: name, and (command, log) that may run side by side."""
    quiet = ["--run.progress", "false"]
    warm = {job.warm: job for job in jobs if job.warm and not (job.warm / "config.json").is_file()}
    yield (
        "warm starts",
        [([*job.warm_command(), *quiet], path.with_suffix(".log")) for path, job in warm.items()],
    )
    yield (
        "runs",
        [([*j.command(), *quiet], j.folder.with_suffix(".log")) for j in jobs if not j.done],
    )
    exams = {
        found: job.exam_command(found, model)
        for job in jobs
        for found, model in job.exams.items()
        if job.done and not found.is_file()
    }
    yield "exams", [(command, found.with_suffix(".log")) for found, command in exams.items()]


def run_all(jobs: list[Job], side_by_side: int) -> list[str]:
    """Warm starts, runs, exams; returns what failed."""
    failed: list[str] = []
    with Progress(console=console) as progress, ThreadPoolExecutor(side_by_side) as pool:
        for label, todo in stages(jobs):
            bar = progress.add_task(label, total=len(todo))

            def one(item: tuple[list[str], Path], bar: Any = bar) -> None:
                try:
                    start(*item)
                except RuntimeError as error:
                    failed.append(str(error))
                progress.advance(bar)

            list(pool.map(one, todo))
    return failed


# -- report -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A finished run's held-out success by update, and what it cost."""

    job: Job
    updates: list[int]
    rates: list[float]
    episodes: int
    seconds: float
    marks: tuple[tuple[int, int], tuple[int, int]]  # (won, played) before and after


def curve_of(job: Job) -> Curve | None:
    """None for a run that is not finished, or not examined yet."""
    if not (job.done and all(exam.is_file() for exam in job.exams)):
        return None
    rows = read_metrics(job.folder)
    held_out = [row for row in rows if "eval_success_rate" in row]
    rates, episodes = [row["eval_success_rate"] for row in held_out], held_out[0]["eval_episodes"]
    before, after = [_marks(path) for path in job.exams] or [
        (round(rate * episodes), episodes) for rate in (rates[0], rates[-1])
    ]
    return Curve(
        job,
        [row["update"] for row in held_out],
        rates,
        episodes,
        sum(row.get("rollout_seconds", 0) + row.get("update_seconds", 0) for row in rows),
        (before, after),
    )


def _marks(exam: Path) -> tuple[int, int]:
    """(won, played) over all splits."""
    splits = json.loads(exam.read_text(encoding="utf-8")).values()
    return sum(won for won, _ in splits), sum(played for _, played in splits)


def pooled(marks: Iterable[tuple[int, int]]) -> tuple[float, float, float]:
    """(rate, low, high) of all seeds' plays together, 95 % (Wilson)."""
    won, played = (sum(column) for column in zip(*marks, strict=True))
    return won / played, *wilson_interval(won, played)


def table_lines(curves: list[Curve]) -> Iterator[str]:
    """Markdown: before and after, by algorithm."""
    yield "| algorithm | seeds | before | after | by seed, before → after | lift | seconds a run |"
    yield "|---|---|---|---|---|---|---|"
    for algorithm in ALGORITHMS:
        runs = [curve for curve in curves if curve.job.algorithm == algorithm]
        if not runs:
            continue
        before, after = (pooled(run.marks[i] for run in runs) for i in (0, 1))
        seeds = ", ".join(
            " → ".join(f"{won / played:.2f}" for won, played in run.marks) for run in runs
        )
        seconds = sum(run.seconds for run in runs) / len(runs)
        clear = "" if after[1] > before[2] else " (intervals overlap)"
        yield (
            f"| {algorithm} | {len(runs)} | {_interval(before)} | {_interval(after)} | {seeds} | "
            f"{after[0] - before[0]:+.2f}{clear} | {seconds:.0f} |"
        )


def difference_line(curves: list[Curve], one: str, other: str) -> str:
    """``one`` minus ``other`` by seed, at the end and over the whole curve."""
    by_seed = {(curve.job.algorithm, curve.job.seed): curve for curve in curves}
    seeds = [seed for name, seed in by_seed if name == one and (other, seed) in by_seed]
    if len(seeds) < 2:
        return ""
    pairs = [(by_seed[one, seed], by_seed[other, seed]) for seed in seeds]
    last = [a.rates[-1] - b.rates[-1] for a, b in pairs]
    mean = [statistics.mean(a.rates[1:]) - statistics.mean(b.rates[1:]) for a, b in pairs]
    return (
        f"{one} minus {other}, {len(seeds)} seeds with the same start: {_mean_error(last)} at the end, "
        f"{_mean_error(mean)} over all evaluations after the first."
    )


def _mean_error(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):+.3f} (standard error {error:.3f})"


def _interval(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"


def over_seeds(curves: list[Curve]) -> Iterator[tuple[str, list[int], list[list[float]]]]:
    """(algorithm, updates, the seeds' rates at each) of all that ran."""
    for algorithm in ALGORITHMS:
        runs = [curve for curve in curves if curve.job.algorithm == algorithm]
        if not runs:
            continue
        points = sorted(set.intersection(*(set(run.updates) for run in runs)))
        by_run = [dict(zip(run.updates, run.rates, strict=True)) for run in runs]
        yield algorithm, points, [[rates[point] for rates in by_run] for point in points]


def figure_of(algorithm: str, by_task: dict[str, list[Curve]]) -> Figure:
    """A panel per task: one algorithm in colour with the band of its seeds, the others in grey."""
    made = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (title, curves) in zip(made.subplots(1, len(by_task)), by_task.items(), strict=True):
        for name, points, columns in over_seeds(curves):
            style = {"color": "tab:blue", "zorder": 3} if name == algorithm else {"color": "0.8"}
            axes.plot(points, [sum(c) / len(c) for c in columns], **style)
            if name == algorithm:
                axes.fill_between(
                    points, [min(c) for c in columns], [max(c) for c in columns], alpha=0.15
                )
        axes.set(xlabel="updates", ylabel="held-out success rate", ylim=(0, 1), title=title)
        axes.grid(alpha=0.3)
    return made


def figure(curves: list[Curve], title: str) -> Figure:
    """One line per algorithm, the mean of its seeds; a band from the lowest to the highest."""
    made = Figure(figsize=(8, 5), layout="constrained")
    axes = made.subplots()
    for algorithm, points, columns in over_seeds(curves):
        means = [sum(column) / len(column) for column in columns]
        (line,) = axes.plot(points, means, marker="o", markersize=3, label=algorithm)
        axes.fill_between(
            points, [min(c) for c in columns], [max(c) for c in columns],
            color=line.get_color(), alpha=0.12, linewidth=0,
        )  # fmt: skip
    axes.set(xlabel="updates", ylabel="held-out success rate", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", ncols=2)
    return made


def report(jobs: list[Job], docs: Path) -> str:
    """The tables, put between the marks of ``docs/learning.md``; PNGs beside it and in ``algorithms``."""
    parts, all_algorithms = [], {}
    for task, text in ((name, spec.title) for name, spec in TASKS.items()):
        curves = [c for job in jobs if job.task == task and (c := curve_of(job)) is not None]
        if not curves:
            continue
        if len({curve.job.algorithm for curve in curves}) == len(ALGORITHMS):
            all_algorithms[text] = curves
        figure(curves, f"{text}: held-out panel, mean of seeds").savefig(
            docs / f"learning_{task}.png", dpi=110
        )
        parts += [
            f"### {text}", "", *table_lines(curves), "",
            *([line, ""] if (line := difference_line(curves, "gigpo", "grpo")) else []),
            f"![held-out success by update](learning_{task}.png)", "",
        ]  # fmt: skip
    if all_algorithms:
        (docs / "algorithms").mkdir(exist_ok=True)
        for algorithm in ALGORITHMS:
            figure_of(algorithm, all_algorithms).savefig(
                docs / "algorithms" / f"{algorithm}.png", dpi=90
            )
    parts.append(f"Measured {time.strftime('%Y-%m-%d')} on {machine()}, one thread a run.")
    block = "\n".join(parts)
    page = docs / "learning.md"
    if page.is_file():
        head, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
        tail = rest.partition(MARKS[1])[2]
        page.write_text(f"{head}{MARKS[0]}\n{block}\n{MARKS[1]}{tail}", encoding="utf-8")
    return block


def jobs_of(options: argparse.Namespace, tasks: Iterable[str]) -> Iterator[Job]:
    """The runs that the command line names."""
    for name in tasks:
        for seed in options.seeds or TASKS[name].seeds:
            for algorithm in options.algorithms or TASKS[name].algorithms:
                yield Job(name, algorithm, seed, options.out.resolve())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/learning"), help="where the runs lie"
    )
    parser.add_argument("--part", type=int, choices=(1, 2), default=1)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="default: all of the part")
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, help="default: the task's")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: the task's")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one thread each")
    parser.add_argument("--report", type=Path, help="folder of learning.md: only write the report")
    parser.add_argument("--json", action="store_true", help="print the curves as JSON")
    options = parser.parse_args()
    if options.report is not None:
        print(report(list(jobs_of(options, list(TASKS))), options.report))
        return 0
    tasks = options.tasks or [name for name, task in TASKS.items() if task.part == options.part]
    jobs = list(jobs_of(options, tasks))
    failed = run_all(jobs, options.jobs)
    curves = [curve for job in jobs if (curve := curve_of(job)) is not None]
    if options.json:
        rows = [{"run": str(c.job.folder), "updates": c.updates, "rates": c.rates} for c in curves]
        print(json.dumps(rows))
    else:
        for task in tasks:
            print("\n".join(table_lines([c for c in curves if c.job.task == task])))
    for line in failed:
        console.print(line, style="red", highlight=False)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
