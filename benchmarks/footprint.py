"""Memory of a fresh process that plays ALFWorld: ``python -m benchmarks.footprint [--replicas 128]``."""

from __future__ import annotations

from typing import Annotated

import typer

import agent_envs
from benchmarks.report import machine
from benchmarks.timing import resident_kb


def main(
    replicas: Annotated[int, typer.Option(help="In groups of 8.")] = 128,
) -> None:
    print(machine())
    print(f"agent_envs imported: {resident_kb() / 1000:.0f} MB resident")
    one = agent_envs.make_group("AgentEnv/ALFWorld-v0", 1, 1)
    one.reset(seed=0)
    print(f"one replica, reset: {resident_kb() / 1000:.0f} MB")
    many = agent_envs.make_group("AgentEnv/ALFWorld-v0", replicas // 8, 8)
    many.reset(seed=1)
    print(f"{replicas} more: {resident_kb() / 1000:.0f} MB")


if __name__ == "__main__":
    typer.run(main)
