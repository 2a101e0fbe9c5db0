"""PPO's value model: one value per position, read before each token of the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification

from agent_envs.core import DataError, OptionError
from trainers.trl_adapter.config import CriticConfig
from trainers.trl_adapter.value_loss import clipped_value_loss

_FILE = "critic.pt"
_ADAPTER = "critic"


def value_model(folder: str | Path, dtype: torch.dtype = torch.float32) -> TokenValues:
    """A token classifier with one label on the model of ``folder``; its first values are 0."""
    with torch.random.fork_rng(devices=[]):  # the head's random weights are thrown away
        model = AutoModelForTokenClassification.from_pretrained(folder, num_labels=1, dtype=dtype)
    for name, parameter in model.named_parameters():
        if name.startswith(("score.", "classifier.")):
            nn.init.zeros_(parameter)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return TokenValues(model)


class TokenValues(nn.Module):
    """(B, S) token ids and mask -> (B, S) values of a token classifier with one label."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        values: Tensor = self.model(input_ids=ids, attention_mask=mask).logits.squeeze(-1)
        return values

    def active(self) -> AbstractContextManager[None]:
        """Nothing to switch: see :class:`SharedTrunk`."""
        return nullcontext()


class SharedTrunk(nn.Module):
    """Values from the policy's own frozen weights, through a LoRA adapter and a head of the critic's.

    Costs the memory of the adapter and the head instead of a second model. The adapter is of the policy's
    shape and begins, as LoRA does, without effect; the head begins at zero.

    Args:
        policy: the policy, a PeftModel; its own adapter is active outside of ``forward``.

    Raises:
        OptionError: the policy has no adapter.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        if not hasattr(policy, "peft_config"):
            raise OptionError("critic.share_trunk needs LoRA: set lora.rank, or leave it out")
        self._policy = (policy,)  # a tuple: the policy's weights are not the critic's
        self._own: str = policy.active_adapter
        with torch.random.fork_rng(devices=[]):
            policy.add_adapter(_ADAPTER, policy.peft_config[self._own])
        hidden = policy.get_base_model().config.get_text_config().hidden_size
        self.adapter = nn.ParameterList(
            parameter for name, parameter in policy.named_parameters() if f".{_ADAPTER}." in name
        )
        self.head = nn.Linear(hidden, 1, device=self.adapter[0].device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        policy.set_adapter(self._own)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        with self.active():
            trunk = self._policy[0].get_base_model().get_decoder()
            states = trunk(input_ids=ids, attention_mask=mask).last_hidden_state
        values: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(-1)
        return values

    @contextmanager
    def active(self) -> Iterator[None]:
        """The critic's adapter in place of the policy's.

        PEFT lets only the active adapter have gradients, so a backward pass has to happen in here too; and
        with gradient checkpointing it runs the forward pass once more.
        """
        policy = self._policy[0]
        if policy.active_adapter == _ADAPTER:
            yield
            return
        policy.set_adapter(_ADAPTER)
        try:
            yield
        finally:
            policy.set_adapter(self._own)


class Critic:
    """A value model and its AdamW.

    Args:
        model: (B, S) ids and mask -> (B, S) values: :func:`value_model` or :class:`SharedTrunk`.
        config: learning rate, clipping.
        processes: over how many the gradients are summed.
    """

    def __init__(
        self, model: TokenValues | SharedTrunk, config: CriticConfig, *, processes: int = 1
    ) -> None:
        self.model, self.config, self._processes = model, config, processes
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def values(self, batch: Mapping[str, Tensor]) -> Tensor:
        """V of the state before each reply token: (B, T) float32, 0 outside the mask."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        values: Tensor = self.model(ids, mask)
        before = values[:, batch["prompt_ids"].shape[1] - 1 : -1].float()
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
        with self.model.active():
            for part in parts:
                loss = clipped_value_loss(
                    self.values(part), part["values"], part["returns"], part["completion_mask"],
                    clip=self.config.value_clip,
                )  # fmt: skip
                (loss.total / max(tokens, 1.0)).backward()
                total, clipped = total + loss.total.detach().cpu(), clipped + loss.clipped.cpu()
        parameters = list(self.model.parameters())
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
