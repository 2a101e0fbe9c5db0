"""One environment at a time: load, reset, step. CPU time, on the largest kitchen."""

from __future__ import annotations

from agent_envs.envs.alfworld import ALFWorldEnv, Engine
from agent_envs.envs.alfworld.library import load_game
from benchmarks.alfworld_kitchen import Kitchen
from benchmarks.report import Row
from benchmarks.timing import cpu_samples

LOADS, RESETS = 20, 2000  # per repetition


def load(kitchen: Kitchen, repetitions: int) -> Row:
    """From ``game.tw-pddl`` (or the generator) to the first observation and list, in ms."""

    def work(_: None) -> None:
        for _load in range(LOADS):
            Engine(kitchen.compile()).reset()

    name = "generate, compile, reset" if kitchen.path is None else "load file, reset"
    samples = cpu_samples(lambda: None, work, repetitions=repetitions, per=1e3 / LOADS)
    return Row(name, "ms", samples, "load_ms")


def engine_reset(kitchen: Kitchen, repetitions: int) -> Row:
    """``Engine.reset`` on a compiled game, in us."""

    def work(engine: Engine) -> None:
        for _ in range(RESETS):
            engine.reset()

    def prepare() -> Engine:
        return Engine(kitchen.compile())

    samples = cpu_samples(prepare, work, repetitions=repetitions, per=1e6 / RESETS)
    return Row("Engine.reset, game loaded", "us", samples)


def env_reset(kitchen: Kitchen, repetitions: int) -> Row:
    """``ALFWorldEnv.reset(seed=...)`` to a task whose game is in memory, in us."""
    options = {"task_index": kitchen.index}

    def work(env: ALFWorldEnv) -> None:
        for seed in range(RESETS):
            env.reset(seed=seed, options=options)

    samples = cpu_samples(kitchen.env, work, repetitions=repetitions, per=1e6 / RESETS)
    return Row("env.reset(seed), game loaded", "us", samples, "reset_us")


def engine_step(kitchen: Kitchen, walk: list[str], repetitions: int) -> Row:
    """``Engine.step`` with its admissible list over a given walk, in us.

    Each repetition plays a newly compiled game, so no list or text is remembered from the last.
    """

    def work(engine: Engine) -> None:
        for command in walk:
            engine.step(command)

    def prepare() -> Engine:
        return Engine(kitchen.compile())

    samples = cpu_samples(prepare, work, repetitions=repetitions, per=1e6 / len(walk))
    return Row("Engine.step", "us", samples)


def env_step(kitchen: Kitchen, walk: list[str], repetitions: int) -> Row:
    """``ALFWorldEnv.step`` with its info (admissible list, anchor ...) over a given walk, in us."""

    def work(env: ALFWorldEnv) -> None:
        for command in walk:
            env.step(command)

    def prepare() -> ALFWorldEnv:
        load_game.cache_clear()
        return kitchen.env()

    samples = cpu_samples(prepare, work, repetitions=repetitions, per=1e6 / len(walk))
    return Row("env.step", "us", samples, "step_us")
