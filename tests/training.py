"""Helpers of the trainer's tests: a toy environment's tiny model, and a trainer on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import agent_envs
from tests.toy import ToyEnv
from trainers.trl_adapter.config import TrainConfig, from_dict, with_overrides
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.trainer import StepwiseTrainer

torch.set_num_threads(1)
agent_envs.register("Test/Toy-v0", ToyEnv)

TOY: dict[str, Any] = {
    "algorithm": "gigpo",
    "env": {"id": "Test/Toy-v0", "options": {"max_steps": 4}},
    "agent": {
        "prompt": {"first": "{observation} [{admissible_actions}]"},
        "memory": {"name": "none"},
        "parser": {"name": "tags", "reason": "", "untagged": "action"},
    },
    "model": {"hidden_size": 32, "layers": 1, "context": 128},
    "rollout": {"groups": 2, "group_size": 4, "max_completion_tokens": 3},
    "optim": {"learning_rate": 1e-2},
    "eval": {"every": 0},
    "run": {"updates": 2, "save_every": 0, "log_to": [], "trajectories": 0, "progress": False},
}


def toy_config(overrides: dict[str, Any] | None = None) -> TrainConfig:
    return with_overrides(from_dict(TOY), overrides or {})


def tiny_folder(where: Path, config: TrainConfig | None = None) -> Path:
    return model_folder(config or toy_config(), where)


def make_trainer(folder: Path, config: TrainConfig, out: Path, **options: Any) -> StepwiseTrainer:
    trainer = StepwiseTrainer(folder, config, output_dir=out, **options)
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def gradient(trainer: StepwiseTrainer) -> torch.Tensor:
    """The flat gradient of one training step on a fresh rollout."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.zero_grad(set_to_none=True)
    trainer.training_step(trainer.model, [{"prompt": ""}])
    return torch.cat([p.grad.flatten().clone() for p in model.parameters()])
