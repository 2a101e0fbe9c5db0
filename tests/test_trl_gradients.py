"""The trainer's gradient: equal to a plain one, whatever the micro-batches and the processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

from tests.training import gradient, guessing_folder, make_trainer, relative, toy_config

LOSSES = ["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guessing_folder(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("loss_type", LOSSES)
def test_micro_batches_leave_the_gradient_alone(folder, tmp_path, loss_type):
    """F099: no loss type is scaled by how the samples are cut up; the entropy bonus included."""
    found = {}
    for tokens in (1, 160, 10**6):
        config = toy_config(
            {"loss.loss_type": loss_type, "loss.entropy_coef": 0.3,
             "optim.micro_batch_tokens": tokens}
        )  # fmt: skip
        trainer = make_trainer(folder, config, tmp_path / str(tokens))
        found[tokens] = gradient(trainer)
        trainer.close()
    assert found[10**6].norm() > 0
    assert relative(found[1], found[10**6]) < 2e-6
    assert relative(found[160], found[10**6]) < 2e-6


def plain_gradient(trainer, batch, loss_type, coef):
    """-A log pi over the same samples, with autograd and nothing of TRL's."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.zero_grad(set_to_none=True)
    mask = batch["completion_mask"].bool()
    rows = mask.any(1)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)[rows]
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)[rows]
    advantages = batch["advantages"][rows]
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    width = batch["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -width - 1 : -1]
    log_probs = logits.log_softmax(-1)
    chosen = log_probs.gather(-1, batch["completion_ids"][rows][..., None])[..., 0]
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    inside = mask[rows].float()
    objective = advantages * chosen * inside
    if loss_type == "dapo":
        loss = -objective.sum() / inside.sum()
    else:
        loss = -(objective.sum(1) / inside.sum(1)).mean()
    loss = loss - coef * (entropy * inside).sum() / inside.sum()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    ("algorithm", "loss_type"),
    [("gigpo", "dapo"), ("grpo", "grpo"), ("gspo", "grpo"), ("rloo", "dapo"),
     ("reinforce_pp", "dapo"), ("ppo", "dapo"), ("dapo", "dapo")],
)  # fmt: skip
def test_gradient_is_the_plain_policy_gradient(folder, tmp_path, algorithm, loss_type):
    # groups enough that DAPO keeps one
    settings = {"loss.entropy_coef": 0.1, "optim.micro_batch_tokens": 200, "rollout.groups": 8}
    config = toy_config(settings)
    trainer = make_trainer(folder, replace(config, algorithm=algorithm), tmp_path)
    found = gradient(trainer)
    batch = trainer._buffered_inputs[0]
    expected = plain_gradient(trainer, batch, loss_type, 0.1)
    trainer.close()
    assert found.norm() > 0
    assert relative(found, expected) < 1e-5
