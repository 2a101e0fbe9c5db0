"""Optimizer steps: TRL's loss over micro-batches of bounded size, kept finite.

One mini-batch is one optimizer step, whatever its size: its gradient is summed over micro-batches. Wild
ratios are held and counted, and a step whose gradient is not finite is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from trl import GRPOTrainer

from trainers.gigpo.columns import Floats
from trainers.trl_adapter import microbatch, seam, vision
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.critic import Critic
from trainers.trl_adapter.logprobs import reply_log_probs
from trainers.trl_adapter.samples import Tensors

RATIO_LIMIT = 20.0  # |log ratio| of a token beyond which it teaches nothing (exp(20) = 5e8)


class MicrobatchTrainer(GRPOTrainer):
    """TRL's trainer, stepping over a batch in micro-batches. Who fills the batch is a subclass's matter."""

    config: TrainConfig
    critic: Critic | None = None
    _old: Tensor | None = None  # the rollout's log-probabilities, while a loss is computed
    _wild_tokens = 0

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One optimizer step's gradient, from micro-batches of bounded size."""
        model.train()
        batch = self._prepare_inputs(inputs)
        begun = time.perf_counter()
        totals = self._totals(batch)
        loss = torch.zeros((), device=self.accelerator.device)
        self._wild_tokens = 0
        parts = (
            [microbatch.take(batch, rows) for rows in self._plan(batch)] if totals.tokens else []
        )
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            with nullcontext() if last else seam.accumulating(self, model):
                loss += self._backward(model, part, totals)
        self.entropy_coef = self.args.entropy_coef
        skipped = self._skip_unless_finite(model, loss, totals)
        if self.critic is not None and parts:
            world = self.accelerator.num_processes
            self.record(**self.critic.update(parts, totals.tokens * world, self._sum_tensor))
        wild = float(self._sum(np.array([self._wild_tokens], np.float64))[0])
        self.record(
            skipped_updates=float(skipped), wild_tokens=wild,
            update_seconds=time.perf_counter() - begun,
        )  # fmt: skip
        self._step += 1
        return loss

    def _backward(self, model: Any, part: dict[str, Any], totals: microbatch.Totals) -> Tensor:
        mask = part["completion_mask"]
        tokens = int(mask.sum())
        scale = microbatch.scale_of(self.loss_type, len(mask), tokens, totals)
        # the bonus is a mean over a micro-batch's tokens in every loss type
        share = tokens / totals.tokens
        self.entropy_coef = self.args.entropy_coef * share / scale if scale else 0.0
        part = self._with_finite_old(part)
        try:
            with self.compute_loss_context_manager():
                loss: Tensor = self.compute_loss(model, part) * scale
        finally:
            self._old = None
        self.accelerator.backward(loss)
        return loss.detach()

    def _with_finite_old(self, part: dict[str, Any]) -> dict[str, Any]:
        """Remembers the rollout's log-probabilities for the ratio; 0 for those that are not finite."""
        self._old_mask = part["completion_mask"].bool()
        self._old = part.get("old_per_token_logps")
        if self._old is None:
            return part
        self._broken = ~torch.isfinite(self._old)
        self._old = self._old.masked_fill(self._broken, 0.0)
        return {**part, "old_per_token_logps": self._old}

    def _totals(self, batch: Tensors) -> microbatch.Totals:
        mask = batch["completion_mask"]
        local = np.array([float(mask.any(1).sum()), float(mask.sum())])
        rows, tokens = self._sum(local) / self.accelerator.num_processes
        return microbatch.Totals(float(rows), float(tokens))

    def _skip_unless_finite(self, model: Any, loss: Tensor, totals: microbatch.Totals) -> bool:
        """Without gradients the optimizer leaves all weights alone, weight decay included."""
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        finite = bool(torch.isfinite(loss))
        if finite and gradients:
            finite = bool(torch.isfinite(torch.stack([g.float().norm() for g in gradients]).sum()))
        broken = self._sum(np.array([0.0 if finite else 1.0]))[0] > 0
        if broken or not totals.tokens:
            for parameter in model.parameters():
                parameter.grad = None
            return True
        return False

    def _plan(self, batch: Tensors) -> list[Tensor]:
        budget = self.config.optim.micro_batch_tokens
        return microbatch.plan(microbatch.widths(batch), budget, self._max)

    # -- log-probabilities ------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, with wild ratios held: exp of a huge log-ratio would be inf, and its gradient NaN.

        Tokens whose log-probability moved by more than :data:`RATIO_LIMIT` since the rollout, or is not
        finite, keep a constant ratio (no gradient) and are counted.
        """
        log_probs, *rest = self._scored(*args, **kwargs)
        if self._old is None:
            return log_probs, *rest
        moved = log_probs.detach() - self._old
        wild = (moved.abs() > RATIO_LIMIT) | ~torch.isfinite(moved) | self._broken
        held = self._old + moved.nan_to_num(0.0).clamp(-RATIO_LIMIT, RATIO_LIMIT)
        held = torch.where(self._broken, self._old, held)  # ratio 1: nothing is known of it
        self._wild_tokens += int((wild & self._old_mask).sum())
        return torch.where(wild, held, log_probs), *rest

    def _scored(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int,
        compute_entropy: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        if self.accelerator.device.type != "cpu" or any(
            value is not None and value is not False
            for name, value in kwargs.items()
            if name not in vision.FIELDS
        ):
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep,
                compute_entropy=compute_entropy, **kwargs,
            )  # fmt: skip
        scored = reply_log_probs(
            model, input_ids, attention_mask, logits_to_keep, temperature=self.temperature,
            entropy=compute_entropy, entropy_gradient=self._entropy_bonus_enabled,
            pictures={n: kwargs[n] for n in vision.FORWARD if kwargs.get(n) is not None},
        )  # fmt: skip
        return *scored, None

    def _in_parts(self, batch: Tensors, score: Callable[[Tensors], Tensor]) -> Tensor:
        """``score`` of micro-batches, put together: (rows, T), 0 outside the mask."""
        mask = batch["completion_mask"]
        result = torch.zeros(mask.shape, device=mask.device)
        with torch.no_grad():
            for rows in self._plan(batch):
                part = score(microbatch.take(batch, rows))
                result[rows.unsqueeze(1), torch.arange(part.shape[1])] = part.float()
        return result * mask

    @contextmanager
    def _evaluation_mode(self) -> Iterator[None]:
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    # -- over processes ---------------------------------------------------------------------------

    def record(self, **figures: float) -> None:
        """Figures of this update; TRL averages them between two rows of the log."""
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def _sum_tensor(self, tensor: Tensor) -> Tensor:
        total: Tensor = self.accelerator.reduce(tensor.to(self.accelerator.device), "sum")
        return total

    def _sum(self, array: Floats) -> Floats:
        if self.accelerator.num_processes == 1:
            return array
        total: Floats = self._sum_tensor(torch.from_numpy(array)).cpu().numpy()
        return total

    def _max(self, tensor: Tensor) -> Tensor:
        if self.accelerator.num_processes == 1:
            return tensor
        rows: Tensor = self.accelerator.gather(tensor.to(self.accelerator.device).unsqueeze(0))
        return rows.max(0).values.cpu()
