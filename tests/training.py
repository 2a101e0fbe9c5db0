"""Helpers of the trainer's tests: a toy environment's tiny model, and a trainer on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, ProgressCallback

import agent_envs
from agent_envs.agent import View
from tests.toy import ToyEnv
from trainers.trl_adapter import seam
from trainers.trl_adapter.config import TrainConfig, from_dict, with_overrides
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.sft import starting_model
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
TIMING = {"rollout_seconds", "tokens_per_second", "update_seconds", "epoch"}


def toy_config(overrides: dict[str, Any] | None = None) -> TrainConfig:
    return with_overrides(from_dict(TOY), overrides or {})


def tiny_folder(where: Path, config: TrainConfig | None = None) -> Path:
    return model_folder(config or toy_config(), where)


def guessing_folder(where: Path) -> Path:
    """A tiny model that says ``wait`` and ``win`` about equally often, and little else."""
    schooling = {
        "episodes": 24, "random": 1.0, "epochs": 12, "batch_size": 4, "learning_rate": 1e-2
    }  # fmt: skip
    fields = {f"warm_start.{name}": value for name, value in schooling.items()}
    config = toy_config(fields | {"rollout.max_completion_tokens": 5})
    return starting_model(config, where, progress=False)


def make_trainer(folder: Path, config: TrainConfig, out: Path, **options: Any) -> StepwiseTrainer:
    trainer = StepwiseTrainer(folder, config, output_dir=out, **options)
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def trained(folder: Path, out: Path, overrides: dict[str, Any] | None = None) -> StepwiseTrainer:
    """A trainer after its run."""
    trainer = make_trainer(folder, toy_config(overrides), out)
    trainer.train()
    trainer.close()
    return trainer


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


def rows(trainer: StepwiseTrainer) -> list[dict[str, Any]]:
    """One row of figures per update."""
    return [row for row in trainer.state.log_history if "loss" in row]


def gradient(trainer: StepwiseTrainer) -> torch.Tensor:
    """The flat gradient of one training step on a fresh rollout."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.zero_grad(set_to_none=True)
    trainer.training_step(trainer.model, [{"prompt": ""}])
    return torch.cat([p.grad.flatten().clone() for p in model.parameters()])


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


class Scripted:
    """Replies by rule, in place of the model's; all else is the trainer's own.

    Args:
        choose: what a replica says: a word, or token ids as they are.
    """

    def __init__(
        self,
        monkeypatch: Any,
        trainer: StepwiseTrainer,
        choose: Callable[[View], str | Sequence[int]],
    ) -> None:
        self._policy, self._choose = trainer.policy, choose
        self._tokenizer = trainer.processing_class
        self.views: list[View] = []
        trainer.collector.policy = self
        monkeypatch.setattr(seam, "generate_single_turn", self._generate)

    def act(self, prompts: Sequence[Any]) -> Sequence[Any]:
        self._asked = [prompt.view for prompt in prompts]
        self.views += self._asked
        return self._policy.act(prompts)

    def _generate(self, trainer: Any, prompt_ids: list[list[int]]) -> tuple[Any, None]:
        asked = [self._asked.pop(0) for _ in prompt_ids]
        return [self.ids(self._choose(view)) for view in asked], None

    def ids(self, said: str | Sequence[int]) -> list[int]:
        """A word's token, or its letters' where it is no word of the model, and the end token."""
        if not isinstance(said, str):
            return list(said)
        table = self._tokenizer.get_vocab()
        pieces = [said] if said in table else list(said)
        return [*(table[piece] for piece in pieces), self._tokenizer.eos_token_id]
