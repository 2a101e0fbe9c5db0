"""16 groups x 8 replicas, one episode of random admissible actions per repetition."""

from __future__ import annotations

import gc
import multiprocessing
import random
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from multiprocess import active_children

import agent_envs
from agent_envs.agent import AgentGroup, RandomPolicy
from agent_envs.envs.alfworld.library import load_game
from agent_envs.group import GroupVectorEnv
from agent_envs.group.process import Process
from benchmarks.report import Row
from benchmarks.timing import Clock, Samples, process_cpu_seconds, resident_kb

GROUPS, SIZE = 16, 8
REPLICAS = GROUPS * SIZE
WORKERS = 2
SEED = 0
_NAME = f"{GROUPS}x{SIZE} "

Options = Mapping[str, Any]


def _make(options: Options, backend: Any = "inline") -> GroupVectorEnv:
    load_game.cache_clear()  # games are loaded anew, so nothing in them is remembered
    return agent_envs.make_group("AgentEnv/ALFWorld-v0", GROUPS, SIZE, backend=backend, **options)


def _begin(group: GroupVectorEnv, seed: int = SEED) -> dict[str, Any]:
    """Reset; returns the infos. Garbage of what was before is collected."""
    _, infos = group.reset(seed=seed)
    gc.collect()
    return infos


def _play(group: GroupVectorEnv, infos: dict[str, Any], clock: Clock) -> int:
    """One episode; only ``group.step`` is on the clock. Returns the env steps taken."""
    draws, steps = random.Random(SEED), 0
    while group.active.any():
        actions = [draws.choice(commands) for commands in infos["admissible_actions"]]
        steps += int(group.active.sum())
        with clock:
            _, _, _, _, infos = group.step(actions)
    return steps


def group_steps(options: Options, repetitions: int) -> Row:
    """Env steps per CPU second of ``GroupVectorEnv.step``, inline backend."""
    values = []
    for _ in range(repetitions):
        group, clock = _make(options), Clock()
        steps = _play(group, _begin(group), clock)
        values.append(steps / clock.cpu)
        group.close()
    return Row(_NAME + "GroupVectorEnv.step", "steps / CPU s", Samples(values, True))


def agent_steps(options: Options, repetitions: int) -> Row:
    """Env steps per CPU second of ``AgentGroup.step``: completions parsed, prompts built.

    The policy's choosing is not counted; the records of the episode are kept, as in training.
    """
    values = []
    for _ in range(repetitions):
        agent, policy, clock = AgentGroup(_make(options)), RandomPolicy(SEED), Clock()
        prompts, steps = agent.reset(seed=SEED), 0
        gc.collect()
        while prompts:
            answers = policy.act(prompts)
            steps += len(prompts)
            with clock:
                prompts = agent.step(answers, prompts).prompts
        values.append(steps / clock.cpu)
        agent.close()
    return Row(_NAME + "AgentGroup.step, with prompts", "steps / CPU s", Samples(values, True))


def process_steps(options: Options, repetitions: int) -> list[Row]:
    """``GroupVectorEnv.step`` with worker processes: steps per wall second, and CPU us per step."""
    wall, parent, workers = list[float](), list[float](), list[float]()
    for _ in range(repetitions):
        group, clock = _make(options, Process(workers=WORKERS)), Clock()
        infos, before = _begin(group), _workers_cpu()
        steps = _play(group, infos, clock)
        workers.append((_workers_cpu() - before) / steps * 1e6)
        wall.append(steps / clock.wall)
        parent.append(clock.cpu / steps * 1e6)
        group.close()
    name = f"{_NAME}GroupVectorEnv.step, {WORKERS} workers"
    return [
        Row(name, "steps / wall s", Samples(wall, True)),
        Row("  CPU per step, this process", "us", Samples(parent)),
        Row("  CPU per step, all workers", "us", Samples(workers)),
    ]


def _workers_cpu() -> float:
    return sum(process_cpu_seconds(child.pid) for child in active_children())


# -- memory --------------------------------------------------------------------------------------


def memory(options: Options, repetitions: int) -> list[Row]:
    """KB per replica at the end of an episode, games included, each measured in a new process.

    Left out: the interpreter, imports and the list of tasks, which all replicas share. The group env
    keeps no records of past steps.
    """
    resident = [_elsewhere(resident_growth, options) for _ in range(repetitions)]
    objects = [_elsewhere(traced_growth, options) for _ in range(repetitions)]
    return [
        Row("memory per replica, resident", "KB", Samples(resident), "memory_kb"),
        Row("memory per replica, Python objects", "KB", Samples(objects)),
    ]


def _elsewhere(measure: Callable[[Options], float], options: Options) -> float:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, options).result()


def resident_growth(options: Options) -> float:
    """Growth of resident memory in KB per replica."""
    return _growth(options, resident_kb)


def traced_growth(options: Options) -> float:
    """Growth of what Python allocated in KB per replica (tracemalloc)."""
    tracemalloc.start()
    return _growth(options, lambda: tracemalloc.get_traced_memory()[0] / 1024)


def _growth(options: Options, used_kb: Callable[[], float]) -> float:
    """What a second group with other tasks adds: the first one pays for all that is shared."""
    first = _played(options, SEED)
    gc.collect()
    before = used_kb()
    second = _played(options, SEED + 1)
    gc.collect()
    growth = used_kb() - before
    for group in (first, second):
        group.close()
    return growth / REPLICAS


def _played(options: Options, seed: int) -> GroupVectorEnv:
    group = _make(options)
    _play(group, _begin(group, seed), Clock())
    return group
