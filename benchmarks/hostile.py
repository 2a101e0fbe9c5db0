"""Throw hostile text at every environment: ``python -m benchmarks.hostile [--actions 50000]``.

Random Unicode, control characters, near-misses of real actions, huge strings. Every action must end
in a valid step (or, for lone surrogates, in a ValueError that changes nothing).
"""

from __future__ import annotations

import random
import sys
import time
from typing import Annotated

import gymnasium
import typer
from rich.progress import track

import agent_envs
from agent_envs.registration import BUILT_IN

_PIECES = (
    "up down left right still hit stand go to take from put move open 10 1 0 + - * / ( ) = ** // {0} %s "
    "<action> </action> __import__('os') \x00 \x1b[0m \u202e \U0001f600 \u6f22\u5b57 \u0661\u0662 \u00d7 "
    "\u2212 \uff0b NaN 1e999 \ud800"
).split(" ")


def hostile(draw: random.Random, admissible: list[str] | None) -> str:
    """One action: a real one, a damaged one, random text, or something huge."""
    kind = draw.random()
    if kind < 0.35 and admissible:
        return draw.choice(admissible)
    if kind < 0.55 and admissible:
        action = draw.choice(admissible)
        cut = draw.randrange(len(action) + 1)
        return action[:cut] + draw.choice(_PIECES) + action[cut:]
    if kind < 0.8:
        return " ".join(draw.choice(_PIECES) for _ in range(draw.randrange(6)))
    if kind < 0.9995:
        return "".join(chr(draw.randrange(0xD7FF)) for _ in range(draw.randrange(40)))
    return draw.choice(_PIECES) * 50_000


def attack(env_id: str, actions: int) -> float:
    """Steps an environment ``actions`` times; returns the slowest step in seconds."""
    env = gymnasium.make(env_id).unwrapped
    draw = random.Random(env_id)
    slowest = 0.0
    _, info = env.reset(seed=0)
    for turn in track(range(actions), env_id, transient=True):
        if env.terminated or env.truncated:  # type: ignore[attr-defined]
            _, info = env.reset(seed=turn)
        action = hostile(draw, info["admissible_actions"])
        start = time.perf_counter()
        try:
            observation, *_, info = env.step(action)
        except ValueError as error:
            if "surrogate" not in str(error):
                raise
            continue
        slowest = max(slowest, time.perf_counter() - start)
        if not env.observation_space.contains(observation):
            raise AssertionError(f"{env_id}: observation outside its space after {action!r:.200}")
    return slowest


def main(
    actions: Annotated[int, typer.Option(help="Actions per environment.")] = 50_000,
) -> None:
    """Attack all built-in environments; a crash shows its action and exits with code 1."""
    for env_id in BUILT_IN:
        slowest = attack(env_id, actions)
        print(f"{env_id}: {actions} actions, 0 crashes, slowest step {slowest * 1e3:.1f} ms")
    print(f"agent-envs {agent_envs.__version__}")
    sys.exit(0)


if __name__ == "__main__":
    typer.run(main)
