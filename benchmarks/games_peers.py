"""Other Sokobans, measured by their own interpreters; prints one JSON object.

``python games_peers.py envpool|gym_sokoban SECONDS``. EnvPool: ``Sokoban-v0`` (10x10), 128 envs on one
thread, steps per CPU second. gym-sokoban: ``Sokoban-v1``-like rooms of 10x10 with 4 boxes, steps per
CPU second and seconds per reset (few: one takes many seconds).
"""

from __future__ import annotations

import json
import sys
import time


def envpool(seconds: float) -> dict[str, list[float]]:
    import envpool as pool
    import numpy as np

    env = pool.make("Sokoban-v0", env_type="gymnasium", num_envs=128, num_threads=1, seed=0)
    env.reset()
    actions = np.random.default_rng(0).integers(0, env.action_space.n, (64, 128)).astype(np.int32)
    rates = []
    for _ in range(5):
        steps, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            for row in actions:
                env.step(row)
            steps += actions.size
        rates.append(steps / (time.process_time() - start))
    return {"steps_per_cpu_s": rates}


def gym_sokoban(seconds: float) -> dict[str, list[float]]:
    import random

    import numpy as np
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    random.seed(0)
    np.random.seed(0)
    start = time.process_time()
    env = SokobanEnv(dim_room=(6, 6), num_boxes=1, max_steps=10**9)
    small = time.process_time() - start
    rates = []
    for _ in range(5):
        steps, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            for action in (1, 2, 3, 4):
                env.step(action, observation_mode="tiny_rgb_array")
            steps += 4
        rates.append(steps / (time.process_time() - start))
    resets = []
    for _ in range(2):
        start = time.process_time()
        SokobanEnv(dim_room=(10, 10), num_boxes=4, max_steps=120)
        resets.append((time.process_time() - start) * 1e3)
    return {"steps_per_cpu_s": rates, "reset_10x10_ms": resets, "reset_6x6_ms": [small * 1e3]}


if __name__ == "__main__":
    print(
        json.dumps(
            {"envpool": envpool, "gym_sokoban": gym_sokoban}[sys.argv[1]](float(sys.argv[2]))
        )
    )
