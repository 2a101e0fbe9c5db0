"""Train PPO of Stable-Baselines3 on the hub's environments, on one core, and draw its learning curve.

Tasks:
  numberline    walk to a number; seconds. Shows that everything is installed.
  sokoban       one box in 6x6 rooms, seen as four planes; minutes. Every training room is new, the
                200 test rooms are of another split: floor plans that training never shows.
  alfworld-toy  household tasks in text, by hashed words and the index of an admissible action.

Writes OUT/TASK.json (figures and curve), OUT/TASK.png (the curve) and OUT/TASK.zip (the model, for
PPO.load). Success is measured with the deterministic policy, each test task once; "random" picks
among the same choices with equal chance. Same task, seed and steps: same model.

    python examples/sb3_ppo.py numberline
    python examples/sb3_ppo.py sokoban --seed 1
    python examples/sb3_ppo.py alfworld-toy --steps 200000 --out runs/toy
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: small matrices gain nothing from two

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecMonitor

import agent_envs
from agent_envs.adapters.sb3 import AdmissiblePolicy, DenseExtractor, SB3VecEnv, play_tasks
from agent_envs.evaluation import wilson_interval


@dataclass(frozen=True)
class Task:
    """An environment and what PPO needs to learn it."""

    env_id: str
    steps: int
    num_envs: int
    options: dict[str, Any] = field(default_factory=dict)
    observation: str = "grid"
    actions: int | None = None  # None: the environment's fixed list
    watched: tuple[str, int] = ("test", 200)  # split and number of tasks along the curve
    test: tuple[str, int] = ("test", 200)
    learning_rate: float = 1e-3
    ppo: dict[str, Any] = field(default_factory=dict)


TASKS = {
    "numberline": Task(
        "AgentEnv/NumberLine-v0",
        steps=6_000,
        num_envs=16,
        ppo={"n_steps": 32, "batch_size": 128, "gamma": 0.9, "ent_coef": 0.01},
    ),
    "sokoban": Task(
        "AgentEnv/Sokoban-6x6-1box-v0",
        steps=1_100_000,
        num_envs=128,
        options={"max_steps": 30, "reward_scale": 0.1},
        watched=("val", 100),
        learning_rate=1.5e-3,
        ppo={
            "n_steps": 32, "batch_size": 1024, "n_epochs": 8, "gamma": 0.97, "ent_coef": 0.005,
            "policy_kwargs": {"features_extractor_class": DenseExtractor, "net_arch": []},
        },
    ),
    "alfworld-toy": Task(
        "AgentEnv/ALFWorld-v0",
        steps=300_000,
        num_envs=64,
        options={"difficulty": "toy", "max_steps": 30, "reward_scale": 0.1},
        observation="text",
        actions=16,
        watched=("valid_seen", 100),
        test=("valid_unseen", 134),
        ppo={"n_steps": 32, "batch_size": 512, "n_epochs": 6, "gamma": 0.97, "ent_coef": 0.01},
    ),
}  # fmt: skip


class RandomModel:
    """Chooses with equal chance among what means an action now."""

    def __init__(self, venv: SB3VecEnv, seed: int) -> None:
        self.venv, self.draw = venv, np.random.default_rng(seed)

    def predict(self, observation: Any, *, deterministic: bool = True) -> tuple[np.ndarray, None]:
        masks = self.venv.action_masks()
        return (self.draw.random(masks.shape) * masks).argmax(axis=1), None


class Curve(BaseCallback):
    """Success on the watched tasks and in training, every ``every`` steps."""

    def __init__(self, venv: SB3VecEnv, count: int, every: int) -> None:
        super().__init__()
        self.venv, self.count, self.every, self.next = venv, count, every, 0
        self.points: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.measure()
            self.next += self.every

    def _on_training_end(self) -> None:
        self.measure()

    def measure(self) -> None:
        recent = self.model.ep_success_buffer or [0.0]
        point = {
            "steps": self.num_timesteps,
            "cpu_seconds": round(time.process_time(), 1),
            "train": float(np.mean(recent)),
            "watched": success_rate(self.model, self.venv, self.count),
        }
        self.points.append(point)
        print("{steps:>9,} steps  {cpu_seconds:6.1f} CPU-s  train {train:.2f}  held out {watched:.2f}"
              .format_map(point), flush=True)  # fmt: skip


def success_rate(model: Any, venv: SB3VecEnv, count: int) -> float:
    """Share of the first ``count`` tasks that the deterministic policy solves."""
    return float(np.mean([info["won"] for info in play_tasks(model, venv, range(count))]))


def make(task: Task, split: str, num_envs: int) -> SB3VecEnv:
    group = agent_envs.make_group(task.env_id, num_groups=num_envs, split=split, **task.options)
    return SB3VecEnv(group, task.observation, task.actions)


def train(task: Task, steps: int, seed: int) -> tuple[PPO, Curve]:
    venv = make(task, "train", task.num_envs)
    policy, ppo = "MlpPolicy", dict(task.ppo)
    if task.observation == "text":
        policy, ppo["policy_kwargs"] = AdmissiblePolicy, {"layout": venv.features}
    model = PPO(
        policy,
        VecMonitor(venv),
        learning_rate=lambda left: task.learning_rate * max(left, 0.05),
        seed=seed,
        device="cpu",
        **ppo,
    )
    split, count = task.watched
    curve = Curve(make(task, split, count), count, steps // 20)
    model.learn(steps, callback=curve)
    return model, curve


def draw(name: str, figures: dict[str, Any], path: Path) -> None:
    """The curve as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points = figures["curve"]
    steps = [point["steps"] / 1000 for point in points]
    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=110)
    axes.plot(steps, [p["train"] for p in points], color="tab:gray", label="training episodes")
    axes.plot(
        steps,
        [p["watched"] for p in points],
        color="tab:blue",
        label=f"{figures['watched_split']} split, deterministic",
    )
    axes.axhline(figures["random"], color="tab:red", linestyle=":", label="random, test split")
    axes.plot(
        steps[-1],
        figures["success"],
        "D",
        color="tab:green",
        clip_on=False,
        label=f"test split: {figures['success']:.3f} of {figures['test_tasks']}",
    )
    axes.set(
        xlabel="thousand environment steps", ylabel="success rate", ylim=(0, 1), xlim=(0, steps[-1])
    )
    axes.set_title(f"PPO on {name}, {figures['cpu_seconds']:.0f} CPU-seconds on one core")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS, help="what to learn")
    parser.add_argument(
        "--steps", type=int, help="environment steps (default: enough for the task)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the networks and the episodes")
    parser.add_argument("--out", type=Path, default=Path("runs/sb3"), help="folder for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = TASKS[arguments.task]
    split, count = task.test
    model, curve = train(task, arguments.steps or task.steps, arguments.seed)
    trained = time.process_time()
    test = make(task, split, count)
    success = success_rate(model, test, count)
    figures = {
        "task": arguments.task,
        "env_id": task.env_id,
        "seed": arguments.seed,
        "steps": model.num_timesteps,
        "cpu_seconds": round(trained, 1),  # of the whole process: imports and the curve included
        "success": success,
        "interval": wilson_interval(round(success * count), count),
        "random": success_rate(RandomModel(test, arguments.seed), test, count),
        "test_split": split,
        "test_tasks": count,
        "watched_split": task.watched[0],
        "curve": curve.points,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.task}.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    model.save(path.with_suffix(".zip"))
    draw(arguments.task, figures, path.with_suffix(".png"))
    low, high = figures["interval"]
    print(
        f"{split}: {success:.3f} of {count} tasks solved (95 %: {low:.2f} to {high:.2f}), random "
        f"{figures['random']:.3f}; {trained:.0f} CPU-s. Written to {arguments.out}"
    )


if __name__ == "__main__":
    main()
