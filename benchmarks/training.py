"""What the adapter costs: against plain generation and backward passes, and against the seed's loops.

python -m benchmarks.training            # about five minutes; --quick leaves the slow peer out
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.report import machine
from trainers.gigpo import episode_returns, gigpo_advantages, step_returns
from trainers.trl_adapter import microbatch, seam
from trainers.trl_adapter.config import TrainConfig, from_dict
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.trainer import StepwiseTrainer

SAMPLES = 65_536
PROMPT = {
    "first": "{task} {observation} [{admissible_actions}]",
    "later": "{task} {history} {observation} [{admissible_actions}]",
    "turn": "{action};",
}
CONFIG = {
    "algorithm": "gigpo",
    "env": {"id": "AgentEnv/ALFWorld-v0", "options": {"difficulty": "toy", "max_steps": 15}},
    "agent": {"prompt": PROMPT, "parser": {"name": "tags", "reason": ""}, "max_prompt_tokens": 200},
    "rollout": {"groups": 4, "group_size": 8, "max_completion_tokens": 16},
    "optim": {"learning_rate": 1e-5},
    "eval": {"every": 0},
    "run": {"updates": 1000, "save_every": 0, "log_to": [], "trajectories": 0, "progress": False},
}


def make(folder: Path, config: TrainConfig) -> StepwiseTrainer:
    """A trainer that is stepped by hand."""
    trainer = StepwiseTrainer(folder, config, output_dir=folder.parent / "out")
    trainer.current_gradient_accumulation_steps = 1
    trainer.create_optimizer()
    return trainer


def cpu(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def our_update(trainer: StepwiseTrainer) -> None:
    """One update as training does it: play, advantages, TRL's loss, optimizer."""
    trainer._buffered_inputs = None
    trainer.training_step(trainer.model, [{"prompt": ""}])
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.state.global_step += 1


@contextmanager
def recorded(calls: list[list[list[int]]]) -> Any:
    """Keeps the prompts of every call of the sampler."""
    original = seam.generate_single_turn

    def spy(trainer: Any, prompt_ids: list[list[int]]) -> Any:
        calls.append(prompt_ids)
        return original(trainer, prompt_ids)

    seam.generate_single_turn = spy
    try:
        yield
    finally:
        seam.generate_single_turn = original


def plain_update(trainer: StepwiseTrainer, calls: list[list[list[int]]], batch: Any) -> None:
    """Generation for the same prompts; log-probabilities, backward and optimizer on the same samples."""
    model, tokenizer = trainer.model, trainer._tokenizer
    model.eval()
    with torch.no_grad():
        for prompts in calls:
            width = max(map(len, prompts))
            ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(p)) + p for p in prompts])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
            model.generate(
                input_ids=ids, attention_mask=mask, generation_config=trainer.generation_config
            )
    model.train()
    total = batch["completion_mask"].sum()
    for rows in trainer._plan(batch):
        part = microbatch.take(batch, rows)
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
        mask = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)
        keep = part["completion_ids"].shape[1]
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=keep + 1).logits[:, :-1]
        chosen = logits.log_softmax(-1).gather(-1, part["completion_ids"][..., None])[..., 0]
        loss = -(part["advantages"][:, None] * chosen * part["completion_mask"]).sum() / total
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)


def overhead(folder: Path, repeats: int) -> dict[str, Any]:
    """CPU seconds of our update and of the plain one on the same samples, alternating."""
    trainer = make(folder, from_dict(CONFIG))
    ours, plain, tokens, samples = [], [], 0.0, 0.0
    our_update(trainer)  # warm up
    for _ in range(repeats):
        calls: list[list[list[int]]] = []
        trainer._metrics["train"].clear()
        with recorded(calls):
            ours.append(cpu(lambda: our_update(trainer)))
        batch = trainer._buffered_inputs[0]
        figures = trainer._metrics["train"]
        samples += figures["samples"][-1]
        tokens += figures["tokens_generated"][-1]
        rng = torch.random.get_rng_state()
        plain.append(cpu(lambda calls=calls, batch=batch: plain_update(trainer, calls, batch)))
        torch.random.set_rng_state(rng)
    trainer.close()
    return {
        "samples per update": samples / repeats,
        "our update, CPU s": sum(ours) / repeats,
        "plain, CPU s": sum(plain) / repeats,
        "overhead": sum(ours) / sum(plain) - 1,
        "generated tokens / CPU s of an update": tokens / sum(ours),
    }


def memory(folder: Path, rollouts: int) -> dict[str, Any]:
    """Highest resident memory of the middle rollouts and of the last ones, which are as many.

    Single readings go up and down with the size of the latest batch.
    """
    small = from_dict(CONFIG)
    small = replace(small, rollout=replace(small.rollout, groups=2, group_size=4))
    trainer = make(folder, small)
    marks = []
    for _ in range(rollouts):
        our_update(trainer)
        trainer._metrics["train"].clear()
        gc.collect()
        marks.append(resident())
    trainer.close()
    part = 2 * rollouts // 5
    middle, late = max(marks[-2 * part : -part]), max(marks[-part:])
    return {
        "rollouts": rollouts, f"peak of rollouts {rollouts - 2 * part + 1} to {rollouts - part}, MB": middle,
        f"peak of the last {part}, MB": late, "growth, MB": late - middle,
    }  # fmt: skip


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


# -- the seed system's way, written from its description: uuid strings in object arrays -------------


def step_columns(samples: int) -> dict[str, Any]:
    """Step samples as a rollout leaves them: 16 steps an episode, 8 episodes a group."""
    draw = np.random.default_rng(0)
    episode = np.arange(samples) // 16
    names = np.array([str(uuid.UUID(int=int(i))) for i in range(episode.max() + 1)], object)
    return {
        "rewards": (draw.random(samples) < 0.05).astype(np.float32),
        "trajectory": names[episode],
        "group": names[episode // 8],
        "anchors": np.array([f"state {i}" for i in draw.integers(0, 24, samples)], object),
    }


def seed_way(columns: dict[str, Any], gamma: float) -> np.ndarray:
    """Scans of the whole batch for each sample, then Python loops over groups and states."""
    rewards, trajectory = columns["rewards"], columns["trajectory"]
    returns = np.zeros(len(rewards), np.float32)
    for first in range(len(rewards)):
        rows = np.where(trajectory == trajectory[first])[0]
        if rows[0] != first:
            continue
        running = 0.0
        for i in reversed(rows):
            running = rewards[i] + gamma * running
            returns[i] = running
    scores = np.zeros(len(rewards), np.float32)
    for uid in dict.fromkeys(trajectory):
        rows = np.where(trajectory == uid)[0]
        scores[rows] = rewards[rows].sum()
    by_group: dict[str, list[int]] = defaultdict(list)
    by_state: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for i in range(len(rewards)):
        by_group[columns["group"][i]].append(i)
        by_state[columns["group"][i], columns["anchors"][i]].append(i)
    result = np.zeros(len(rewards), np.float32)
    for rows_of, values in ((by_group, scores), (by_state, returns)):
        for members in rows_of.values():
            mean = np.mean([values[i] for i in members])
            for i in members:
                result[i] += values[i] - mean
    return result


def our_way(columns: dict[str, Any], gamma: float) -> np.ndarray:
    """The same numbers by this package."""
    return gigpo_advantages(
        episode_returns(columns["rewards"], columns["trajectory"]),
        step_returns(columns["rewards"], columns["trajectory"], gamma),
        columns["group"], columns["trajectory"], columns["anchors"],
        baseline_over="steps", singleton="raw",
    )  # fmt: skip


def advantages(samples: int, quick: bool) -> dict[str, Any]:
    """GiGPO on many samples: ours, and the seed's way (its result must be equal)."""
    columns = step_columns(samples)
    ours = min(cpu(lambda: our_way(columns, 0.95)) for _ in range(3))
    row = {"samples": samples, "ours, CPU s": ours}
    if not quick:
        theirs = cpu(lambda: columns.update(peer=seed_way(columns, 0.95)))
        difference = float(np.abs(columns["peer"] - our_way(columns, 0.95)).max())
        row |= {
            "the seed's way, CPU s": theirs,
            "ratio": theirs / ours,
            "largest difference": difference,
        }
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, no quadratic peer")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = model_folder(from_dict(CONFIG), Path(name))
        found = {
            # first: a process that has been larger before would hide growth
            "memory": memory(folder, 10 if options.quick else 50),
            "adapter against plain torch, tiny model": overhead(folder, 2 if options.quick else 6),
            "GiGPO advantages": advantages(SAMPLES, options.quick),
        }
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    console = Console()
    console.print(machine())
    for title, rows in found.items():
        table = Table("measure", "value", title=title, title_justify="left")
        for key, value in rows.items():
            table.add_row(key, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}")
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
