"""AppWorld's embedded world: speed, memory, and what every task and every text has to pass.

python -m benchmarks.appworld                      # 128 replicas: ms a step, episodes a second, memory
python -m benchmarks.appworld --gates 1000         # tasks: solution 1, doing nothing 0, broken ones fail
python -m benchmarks.appworld --hostile 10000      # odd texts as code: each ends in a step, nothing leaks
python -m benchmarks.appworld --executor monty     # with the other executor
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, Prompt
from agent_envs.envs.appworld.build import build_world, make_apps
from agent_envs.envs.appworld.env import shared_executor
from agent_envs.envs.appworld.execution import Limits
from agent_envs.envs.appworld.sim import SimEpisode
from agent_envs.envs.appworld.store import Overlay
from agent_envs.envs.appworld.tasks import Catalogue, task_of
from agent_envs.envs.appworld.tasks.gates import problems, survivors
from agent_envs.evaluation import evaluate
from benchmarks.report import machine

ENV_ID = "AgentEnv/AppWorld-v0"
GROUPS, SIZE = 16, 8
console = Console()


def speed(executor: str) -> None:
    """128 replicas that call an API at each step, and experts that play whole episodes."""
    begun = time.perf_counter()
    world = build_world(12_345)
    built = time.perf_counter() - begun
    rows = sum(map(len, world.tables.values()))
    overlay = Overlay(world)
    begun = time.perf_counter()
    for _ in range(10_000):
        overlay.fork()
    forked = (time.perf_counter() - begun) / 10_000
    group = agent_envs.make_group(ENV_ID, GROUPS, SIZE, executor=executor)
    begun = time.perf_counter()
    group.reset(seed=0)
    reset = time.perf_counter() - begun
    code = (
        "d = apis.supervisor.show_profile()\n"
        "x = apis.api_docs.show_app_descriptions()\n"
        "print(d['email'], len(x))"
    )
    first = _step(group, code)
    steps = np.array([_step(group, code) for _ in range(20)]) / group.num_envs * 1e3
    memory = sum(map(_proportional_kb, _family())) / 1024
    group.close()
    begun = time.perf_counter()
    agent = AgentGroup(agent_envs.make_group(ENV_ID, GROUPS, SIZE, executor=executor))
    rollout = agent.rollout(ExpertPolicy(), seed=0)
    taken = time.perf_counter() - begun
    won = sum(steps[-1].info["won"] for steps in rollout.trajectories().values())
    agent.close()
    table = Table("measure", "value", title=f"AppWorld, executor {executor}, {machine()}")
    for name, value in (
        (f"a world of {rows:,} rows", f"{built:.2f} s"),
        ("fork of an overlay", f"{forked * 1e6:.1f} us"),
        (f"reset of {GROUPS} x {SIZE}", f"{reset:.2f} s"),
        ("first step (namespaces begin), a replica", f"{first / group.num_envs * 1e3:.1f} ms"),
        (
            "later steps, two API calls, a replica",
            f"{np.median(steps):.2f} ms, at most {steps.max():.2f}",
        ),
        (
            "memory of the executor's processes (PSS)",
            f"{memory:.0f} MB",
        ),
        ("expert episodes", f"{GROUPS * SIZE / taken:.1f} a second, {won} of {GROUPS * SIZE} won"),
    ):
        table.add_row(name, value)
    console.print(table)


def _step(group: Any, code: str) -> float:
    begun = time.perf_counter()
    observations, *_ = group.step([code] * group.num_envs)
    assert len(set(observations)) == GROUPS or all("@" in o for o in observations)
    return time.perf_counter() - begun


def _family() -> Iterator[int]:
    """All processes below this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    known = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return iter(known - {os.getpid()})


def _proportional_kb(pid: int) -> int:
    """Memory of a process, pages that it shares counted by their share (PSS)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(text.partition("\nPss:")[2].split()[0])


def gates(count: int, executor: str) -> None:
    """Tasks of all splits in turn."""
    tasks, apps = Catalogue(), make_apps()
    ids = [
        tasks.task_id(split, i) for split in tasks.splits for i in range(tasks.count(split) or 0)
    ]
    random.Random(0).shuffle(ids)
    # beyond the splits: the same families in further worlds
    more = [
        f"{name.rsplit('_', 2)[0]}_{1000 + i}_{i % 3 + 1}"
        for i, name in enumerate(ids * (count // len(ids) + 1))
    ]
    chosen = [*ids, *more][:count]

    def play(task: Any, pieces: Any) -> Any:
        episode = SimEpisode(task, apps, shared_executor(executor, False), Limits())
        try:
            for piece in pieces:
                episode.execute(piece)
            return episode.report()
        finally:
            episode.close()

    found: list[str] = []
    fates: Counter[tuple[str, bool]] = Counter()
    undrawn = 0
    for name in track(chosen, "gates", console=console):
        try:
            task = task_of(name)
        except ValueError:
            undrawn += 1
            continue
        found += [f"{name}: {problem}" for problem in problems(task, play)]
        fates.update(survivors(task, play).items())
    for line in found:
        console.print(line)
    console.print(
        f"{count} tasks, {len(found)} problems, {undrawn} that their world does not offer"
    )
    for name in sorted({name for name, _ in fates}):
        failed, passed = fates[name, True], fates[name, False]
        console.print(f"solutions that {name}: {failed} of {failed + passed} fail")


def hostile(count: int, executor: str) -> None:
    """Random texts and fragments of Python."""
    rng = random.Random(0)
    parts = (
        "while True: pass", "x = 'a' * 10**9", "import os", "os.fork()", "print(apis)", "1/0",
        "raise SystemExit", "exit()", "del __builtins__",
        "()", "\0", "\ud7ff", "'''", "def f(: ", "lambda: f()",
        "apis.phone.login()", "print('a' * 10**7)", "\n", "    ", "import ctypes", "open('/etc/passwd')",
        "[" * 200, "\U0001f600", "yield", "await x",
    )  # fmt: skip
    env: Any = agent_envs.make_group(
        ENV_ID, 1, 1, executor=executor, seconds=0.3, max_interactions=10**9
    )
    env.reset(seed=0)
    kinds: Counter[str] = Counter()
    for _ in track(range(count), "texts", console=console):
        text = rng.choice(("", " ", "\n", ";")).join(rng.choices(parts, k=rng.randint(1, 4)))
        if rng.random() < 0.3:
            text = "".join(chr(rng.randrange(1, 0xD7FF)) for _ in range(rng.randint(1, 40)))
        observations, _, _, truncated, infos = env.step([text])
        if truncated[0]:
            kinds["replica closed: " + str(infos.get("error"))] += 1
            env.reset(seed=0)
            continue
        kinds[observations[0].split(".")[0].split(":")[0][:40]] += 1
    env.close()
    left = len(list(_family()))
    for kind, number in kinds.most_common(12):
        console.print(f"{number:>7}  {kind!r}")
    closed = sum(number for kind, number in kinds.items() if kind.startswith("replica"))
    console.print(
        f"{count} texts, {closed} closed replicas; {left} processes left of the executor (its fork server)"
    )


class Guess:
    """Completes each task at once, with a number drawn at random."""

    def __init__(self) -> None:
        self._rng = random.Random(0)

    def act(self, prompts: Sequence[Prompt]) -> list[str]:
        code = "<code>apis.supervisor.complete_task(answer={})</code>"
        return [code.format(self._rng.randrange(10)) for _ in prompts]


def scores(executor: str) -> None:
    """The expert's score, as the benchmark's users read it, and that of a guess."""
    for split in Catalogue().splits:
        guess = evaluate(Guess(), ENV_ID, split=split, num_envs=32, executor=executor)
        console.print(
            f"{split}: a guess TGC {guess.success_rate:.3f}, mean score {guess.mean_score:.3f}"
        )
        result = evaluate(ExpertPolicy(), ENV_ID, split=split, num_envs=32, executor=executor)
        scenarios: dict[str, list[bool]] = {}
        for episode in result.episodes:
            scenarios.setdefault(episode.task_id.rpartition("_")[0], []).append(episode.won)
        whole = sum(map(all, scenarios.values())) / len(scenarios)
        kinds = ", ".join(
            f"{kind} {part.success_rate:.2f}" for kind, part in result.by_type().items()
        )
        console.print(
            f"{split}: expert TGC {result.success_rate:.3f}, SGC {whole:.3f} "
            f"({len(result.episodes)} tasks; {kinds})"
        )


def main(
    gates_: Annotated[int, typer.Option("--gates", help="Check so many tasks.")] = 0,
    hostile_: Annotated[int, typer.Option("--hostile", help="Run so many odd texts.")] = 0,
    scores_: Annotated[bool, typer.Option("--scores", help="The expert on every split.")] = False,
    executor: Annotated[str, typer.Option(help="process or monty.")] = "process",
) -> None:
    """Print the tables."""
    if gates_:
        gates(gates_, executor)
    if hostile_:
        hostile(hostile_, executor)
    if scores_:
        scores(executor)
    if not (gates_ or hostile_ or scores_):
        speed(executor)


if __name__ == "__main__":
    typer.run(main)
