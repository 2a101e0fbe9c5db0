"""PPO's value model: one value per position, read before each token of the reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForTokenClassification

from agent_envs.core import DataError
from trainers.trl_adapter.config import CriticConfig
from trainers.trl_adapter.value_loss import clipped_value_loss

_FILE = "critic.pt"


class Critic:
    """A token-classification model with one label from the policy's own folder, and its AdamW.

    Its head begins at zero, so the first values are 0 whatever the seed.

    Args:
        folder: a Hugging Face model folder.
        config: learning rate, clipping.
        dtype: of the weights.
        device: where it lives.
        processes: over how many the gradients are summed.
    """

    def __init__(
        self,
        folder: str | Path,
        config: CriticConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: Any = "cpu",
        processes: int = 1,
    ) -> None:
        self.config, self._processes = config, processes
        with torch.random.fork_rng(devices=[]):  # the head's random weights are thrown away
            self.model = AutoModelForTokenClassification.from_pretrained(
                folder, num_labels=1, dtype=dtype
            ).to(device)
        for name, parameter in self.model.named_parameters():
            if name.startswith(("score.", "classifier.")):
                torch.nn.init.zeros_(parameter)
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """V of the state before each reply token: (B, T) float32, 0 outside the mask."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        logits = self.model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
        before: Tensor = logits[:, batch["prompt_ids"].shape[1] - 1 : -1].float()
        return before * batch["completion_mask"]

    def update(
        self, parts: list[dict[str, Any]], tokens: float, reduce: Callable[[Tensor], Tensor]
    ) -> dict[str, float]:
        """One optimizer step on the micro-batches of a mini-batch.

        Args:
            parts: each with the token tensors, ``values`` and ``returns`` (B, T).
            tokens: unmasked ones of the mini-batch over all processes.
            reduce: sums a tensor over processes.
        """
        self.optimizer.zero_grad(set_to_none=True)
        total = clipped = torch.zeros(())
        for part in parts:
            loss = clipped_value_loss(
                self.values(part), part["values"], part["returns"], part["completion_mask"],
                clip=self.config.value_clip,
            )  # fmt: skip
            (loss.total / max(tokens, 1.0)).backward()
            total, clipped = total + loss.total.detach().cpu(), clipped + loss.clipped.cpu()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if self._processes > 1:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad = reduce(parameter.grad)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm)
        skipped = not bool(torch.isfinite(norm))
        if not skipped and tokens:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        sums = reduce(torch.stack([total, clipped.float()])) / max(tokens, 1.0)
        return {
            "critic/loss": float(sums[0]),
            "critic/clip_ratio": float(sums[1]),
            "critic/grad_norm": float(norm),
            "critic/skipped_updates": float(skipped),
        }

    def save(self, folder: str | Path) -> None:
        """Weights and optimizer, beside a checkpoint's other files."""
        torch.save(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            Path(folder) / _FILE,
        )

    def load(self, folder: str | Path) -> None:
        """DataError where the checkpoint holds no critic."""
        path = Path(folder) / _FILE
        if not path.is_file():
            raise DataError(f"{folder} holds no {_FILE}: it is no checkpoint of a PPO run")
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
