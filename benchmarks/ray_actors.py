"""Groups over Ray: a few actors that hold many replicas, against one actor per environment.

``python -m benchmarks.ray_actors`` (needs ``pip install ray``)
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import gymnasium
import ray
import typer
from rich.console import Console

import agent_envs
from benchmarks.report import Row, machine, table
from benchmarks.timing import Samples

ENV_ID, ACTION = "AgentEnv/ALFWorld-v0", "look"
REPETITIONS = 5
console = Console()


class Alone:
    """One environment in an actor of its own, as most trainers do it."""

    def __init__(self) -> None:
        import agent_envs  # noqa: F401 - registers the ids

        self._env = gymnasium.make(ENV_ID)

    def reset(self, seed: int) -> Any:
        return self._env.reset(seed=seed)

    def step(self, action: str) -> Any:
        return self._env.step(action)


def grouped(groups: int, size: int, turns: int) -> tuple[float, Samples]:
    """Seconds to start, and replica steps per second."""
    begun = time.perf_counter()
    backend = agent_envs.Ray(2, actor_options={"num_cpus": 0.01})
    group = agent_envs.make_group(ENV_ID, groups, size, backend=backend)
    group.reset(seed=0)
    started = time.perf_counter() - begun
    rates = []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        for _ in range(turns):
            group.step([ACTION] * group.num_envs)
        rates.append(turns * group.num_envs / (time.perf_counter() - begun))
        group.reset(seed=0)
    group.close()
    return started, Samples(rates, higher_is_better=True)


def alone(count: int, turns: int) -> tuple[float, Samples]:
    """The same with ``count`` actors."""
    begun = time.perf_counter()
    kind = ray.remote(num_cpus=0.01)(Alone)
    actors = [kind.remote() for _ in range(count)]
    ray.get([actor.reset.remote(0) for actor in actors])
    started = time.perf_counter() - begun
    rates = []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        for _ in range(turns):
            ray.get([actor.step.remote(ACTION) for actor in actors])
        rates.append(turns * count / (time.perf_counter() - begun))
        ray.get([actor.reset.remote(0) for actor in actors])
    return started, Samples(rates, higher_is_better=True)


def main(
    groups: Annotated[int, typer.Option(help="Groups.")] = 2,
    size: Annotated[int, typer.Option(help="Replicas of a group.")] = 8,
    turns: Annotated[int, typer.Option(help="Steps of each replica in a repetition.")] = 20,
) -> None:
    """Print the table."""
    ours_start, ours = grouped(groups, size, turns)
    peer_start, peer = alone(groups * size, turns)
    rows = [
        Row("replica steps, wall time", "1/s", ours, "one actor each", peer),
        Row(
            "start and first reset",
            "s",
            Samples([ours_start]),
            "one actor each",
            Samples([peer_start]),
        ),
    ]
    console.print(
        table(f"ALFWorld {groups} x {size} over Ray, {machine()}", "one actor each", rows)
    )


if __name__ == "__main__":
    typer.run(main)
