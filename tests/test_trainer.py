"""The trainer on a toy environment: what is learned from, what is not, and what is repeatable."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

from agent_envs.core import OptionError
from tests.training import (
    TIMING,
    Scripted,
    gradient,
    guessing_folder,
    make_trainer,
    relative,
    rows,
    toy_config,
    trained,
    weights,
)
from trainers.trl_adapter import seam

GUESS = {"rollout.max_completion_tokens": 5}  # room for the replies that the model was taught
SHORT = GUESS | {"env.options.max_steps": 2}  # some episodes are lost
VARIANTS = {
    **{name: {"algorithm": name} for name in
       ("gigpo", "grpo", "ppo", "dapo", "gspo", "rloo", "reinforce_pp")},
    "gigpo-dynamic": {"rollout.dynamic": True},
    "gigpo-similarity": {"advantage.similarity": 0.9},
    "reinforce_pp-baseline": {"algorithm": "reinforce_pp", "advantage.group_baseline": True},
    "reinforce_pp-kl": {"algorithm": "reinforce_pp", "advantage.kl_in_reward": 0.1},
    "ppo-episode": {"algorithm": "ppo", "advantage.chain": "episode"},
    "ppo-kl": {"algorithm": "ppo", "advantage.kl_in_reward": 0.1},
    "kl": {"algorithm": "grpo", "loss.kl_coef": 0.1},
    "several-steps": {"optim.mini_batches": 3, "optim.iterations": 2},
    "gspo-several-steps": {"algorithm": "gspo", "optim.mini_batches": 2, "optim.iterations": 2},
    "ppo-several-steps": {"algorithm": "ppo", "optim.mini_batches": 3, "optim.iterations": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guessing_folder(tmp_path_factory.mktemp("guessing"))


def rollout_batch(trainer):
    """One rollout as the batch that the loss sees."""
    trainer.model.train()
    return trainer._generate_and_score_completions([{"prompt": ""}])


def unpadded(batch, name):
    return [
        row[mask.bool()].tolist()
        for row, mask in zip(batch[f"{name}_ids"], batch[f"{name}_mask"], strict=True)
    ]


def some_win(view):
    """Members 0 and 1 of a group win in their second and third step, the others never."""
    return "win" if view.member < 2 and view.step == view.member + 1 else "wait"


# -- all algorithms --


@pytest.mark.parametrize("name", VARIANTS)
def test_two_updates_move_the_weights(folder, tmp_path, monkeypatch, name):
    trainer = make_trainer(folder, toy_config(VARIANTS[name]), tmp_path)
    Scripted(monkeypatch, trainer, some_win)
    before = weights(trainer.model)
    trainer.train()
    trainer.close()
    found = rows(trainer)
    assert [row["step"] for row in found] == [trainer.config.steps_per_rollout * n for n in (1, 2)]
    assert max(row["grad_norm"] for row in found) > 1e-3
    assert sum(row["skipped_updates"] for row in found) < 2
    after = weights(trainer.model)
    assert torch.isfinite(after).all()
    assert float((after - before).norm()) > 1e-2
    for row in found:
        assert all(math.isfinite(value) for value in row.values()), row
    if trainer.critic is not None:
        assert found[0]["critic/loss"] > 0
        assert found[0]["critic/skipped_updates"] == 0


# -- what the samples are --


@pytest.mark.parametrize("pad", ["pad", "eos"])
def test_trains_on_the_very_ids_that_were_sampled(folder, tmp_path, monkeypatch, pad):
    """F103; F102: the end token is learned too, also where it is the padding."""
    trainer = make_trainer(folder, toy_config(SHORT), tmp_path)
    if pad == "eos":
        trainer.processing_class.pad_token = trainer.processing_class.eos_token
    sampled = []
    original = seam.generate_single_turn

    def spy(owner, prompt_ids):
        replies, logprobs = original(owner, prompt_ids)
        sampled.extend(zip(map(tuple, prompt_ids), map(tuple, replies), strict=True))
        return replies, logprobs

    monkeypatch.setattr(seam, "generate_single_turn", spy)
    batch = rollout_batch(trainer)
    trainer.close()
    prompts, replies = unpadded(batch, "prompt"), unpadded(batch, "completion")
    assert len(sampled) > 8
    assert Counter(sampled) == Counter(zip(map(tuple, prompts), map(tuple, replies), strict=True))
    eos = trainer.processing_class.eos_token_id
    ended = [reply for reply in replies if len(reply) < GUESS["rollout.max_completion_tokens"]]
    assert ended
    assert all(reply[-1] == eos for reply in ended)
    assert batch["prompt_mask"][:, -1].all()  # padded on the left
    assert batch["completion_mask"][:, 0].all()  # and on the right


def test_generates_only_for_replicas_that_still_play(folder, tmp_path, monkeypatch):
    trainer = make_trainer(folder, toy_config(GUESS), tmp_path)
    asked = []
    original = seam.generate_single_turn
    monkeypatch.setattr(
        seam, "generate_single_turn", lambda t, ids: (asked.append(len(ids)), original(t, ids))[1]
    )
    rollout_batch(trainer)
    trainer.close()
    lengths = [len(steps) for steps in trainer.last_rollout.trajectories().values()]
    assert asked == [sum(length > t for length in lengths) for t in range(max(lengths))]
    assert asked[-1] < asked[0]


def test_few_rows_per_generation_still_answer_every_prompt(folder, tmp_path):
    trainer = make_trainer(folder, toy_config(SHORT | {"rollout.rows_per_generation": 3}), tmp_path)
    batch = rollout_batch(trainer)
    trainer.close()
    assert len(trainer.last_rollout.starts) == 8
    for step, reply in zip(
        sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step)),
        unpadded(batch, "completion"),
        strict=True,
    ):
        assert list(step.completion.token_ids) == reply


# -- repeatability --


def test_same_config_gives_bit_equal_weights(folder, tmp_path):
    found = [weights(trained(folder, tmp_path / str(i), SHORT).model) for i in range(2)]
    other = weights(trained(folder, tmp_path / "other", SHORT | {"run.seed": 1}).model)
    assert torch.equal(*found)
    assert not torch.equal(found[0], other)


def test_micro_batches_do_not_change_what_is_played(folder, tmp_path):
    found = {}
    for tokens in (40, 10**6):
        trainer = make_trainer(
            folder, toy_config(SHORT | {"optim.micro_batch_tokens": tokens}), tmp_path / str(tokens)
        )
        played = []
        collect = trainer.collector.collect

        def spy(*args, collect=collect, played=played, **options):
            collected = collect(*args, **options)
            played.append([(s.trajectory, s.prompt.text, s.completion.token_ids)
                           for s in collected.rollout.steps])  # fmt: skip
            return collected

        trainer.collector.collect = spy
        trainer.train()
        trainer.close()
        found[tokens] = played, weights(trainer.model)
    assert found[40][0] == found[10**6][0]
    assert len(found[40][0]) == 2
    assert relative(found[40][1], found[10**6][1]) < 1e-4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_evaluating_in_between_does_not_change_training(folder, tmp_path, temperature):
    with_it = trained(
        folder, tmp_path / "with", SHORT | {"eval.every": 1, "eval.temperature": temperature}
    )
    without = trained(folder, tmp_path / "without", SHORT)
    assert torch.equal(weights(with_it.model), weights(without.model))
    assert len([r for r in with_it.state.log_history if "eval_success_rate" in r]) == 3
    for one, other in zip(rows(with_it), rows(without), strict=True):
        assert {k: v for k, v in one.items() if k not in TIMING} == {
            k: v for k, v in other.items() if k not in TIMING
        }
    assert [e.task_id for e in with_it.last_evaluation.episodes] == [f"task-{i}" for i in range(7)]


def test_each_update_plays_other_tasks_and_a_limit_on_tasks_holds(folder, tmp_path, monkeypatch):
    trainer = make_trainer(
        folder,
        toy_config(SHORT | {"env.tasks": 3, "run.updates": 4, "rollout.groups": 4}),
        tmp_path,
    )
    scripted = Scripted(monkeypatch, trainer, lambda view: "win")
    trainer.train()
    trainer.close()
    tasks = [view.task for view in scripted.views]
    assert {*tasks} == {f"win task-{i}" for i in range(3)}
    seeds = {view.group_seed for view in scripted.views}
    assert len(seeds) == 16
    for seed in seeds:  # the replicas of a group start alike
        assert len({v.observation for v in scripted.views if v.group_seed == seed}) == 1


# -- failures --


@pytest.mark.parametrize("name", ["gigpo", "grpo", "ppo", "ppo-episode", "reinforce_pp", "rloo"])
def test_a_failing_replica_is_masked_and_the_others_train(folder, tmp_path, monkeypatch, name):
    """F116, F090."""
    config = toy_config(
        VARIANTS[name] | {"optim.weight_decay": 0.0, "rollout.max_completion_tokens": 8}
    )
    trainer = make_trainer(folder, config, tmp_path)

    Scripted(
        monkeypatch,
        trainer,
        lambda view: "raise" if view.replica == 1 and view.step == 1 else some_win(view),
    )
    batch = rollout_batch(trainer)
    rollout = trainer.last_rollout
    assert list(rollout.failures) == [1]
    lost = [s.replica == 1 for s in sorted(rollout.steps, key=lambda s: (s.trajectory, s.step))]
    assert sum(lost) == 2  # the step that went well does not teach either
    masked = ~batch["completion_mask"].any(1)
    assert masked.tolist() == lost
    advantages = batch["advantages"]
    assert torch.isfinite(advantages).all()
    assert not advantages[masked].any()
    assert advantages[~masked].any()
    figures = trainer._metrics["train"]
    assert figures["failed_episodes"] == [1.0]
    assert figures["masked_samples"] == [2.0]
    found = gradient(trainer)
    trainer.close()
    assert torch.isfinite(found).all()
    assert found.norm() > 0


@pytest.mark.parametrize(
    "name", ["gigpo", "ppo", "ppo-episode", "ppo-kl", "dapo", "reinforce_pp", "kl", "several-steps"]
)
def test_an_update_of_failures_only_is_skipped_and_counted(folder, tmp_path, monkeypatch, name):
    """F090: no gradient, no weight decay either."""
    config = toy_config(
        VARIANTS[name] | {"rollout.max_completion_tokens": 8, "optim.weight_decay": 0.5}
    )
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, lambda view: "raise")
    before = weights(trainer.model)
    critic = trainer.critic and weights(trainer.critic.model)
    trainer.train()
    trainer.close()
    assert torch.equal(weights(trainer.model), before)
    if critic is not None:
        assert torch.equal(weights(trainer.critic.model), critic)
    for row in rows(trainer):
        assert row["skipped_updates"] == 1
        assert row["failed_episodes"] == 8
        assert row["success_rate"] == 0


@pytest.mark.parametrize("bad", ["some", "all"])
def test_episodes_that_cannot_start_are_failures_too(folder, tmp_path, monkeypatch, bad):
    tasks = tuple(f"task-{i}" for i in range(5 if bad == "some" else 10))
    config = toy_config({"env.options.bad_tasks": tasks, "rollout.groups": 8})
    trainer = make_trainer(folder, config, tmp_path)
    scripted = Scripted(monkeypatch, trainer, lambda view: "win" if view.member else "wait")
    before = weights(trainer.model)
    trainer.train()
    trainer.close()
    played = len({view.group_seed for view in scripted.views})
    found = rows(trainer)
    assert sum(row["failed_episodes"] for row in found) == 4 * (2 * 8 - played)
    if bad == "all":
        assert played == 0
        assert torch.equal(weights(trainer.model), before)
        assert [row["skipped_updates"] for row in found] == [1, 1]
    else:
        assert 0 < played < 16
        assert not torch.equal(weights(trainer.model), before)
        assert sum(row["success_rate"] for row in found) == pytest.approx(played / 8 * 3 / 4)


# -- numbers that are not finite --


def nan_loss(loss, parameter):
    return loss * float("nan")


def inf_loss(loss, parameter):
    return loss + parameter.sum() * float("inf")


def nan_gradient(loss, parameter):
    flat = parameter.flatten()[0]
    return loss + torch.sqrt((flat - flat.detach()) ** 2)


@pytest.mark.parametrize(
    ("spoil", "tokens"), [(nan_loss, 40), (inf_loss, 10**6), (nan_gradient, 40)]
)
def test_a_broken_step_leaves_the_weights_alone(folder, tmp_path, spoil, tokens):
    config = toy_config(SHORT | {"optim.weight_decay": 0.5, "optim.micro_batch_tokens": tokens})
    trainer = make_trainer(folder, config, tmp_path)
    compute, calls = trainer.compute_loss, []

    def once(model, inputs, **options):
        loss = compute(model, inputs, **options)
        calls.append(loss)
        return spoil(loss, next(model.parameters())) if len(calls) == 1 else loss

    trainer.compute_loss = once
    seen, before = [], weights(trainer.model)
    step = trainer.training_step
    trainer.training_step = lambda *a, **k: (seen.append(weights(trainer.model)), step(*a, **k))[1]
    trainer.train()
    trainer.close()
    assert torch.equal(seen[0], before)
    assert torch.equal(seen[1], before)  # after the broken step
    assert not torch.equal(weights(trainer.model), before)
    assert [row["skipped_updates"] for row in rows(trainer)] == [1, 0]


@pytest.mark.parametrize("name", ["gigpo", "gspo", "ppo"])
@pytest.mark.parametrize("off", [100.0, -100.0, float("nan")])
def test_wild_ratios_are_held_and_counted(folder, tmp_path, monkeypatch, name, off):
    """NaN: a log-probability of the rollout that is not known."""
    config = toy_config(VARIANTS[name] | {"optim.iterations": 2})
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, some_win)
    gradient(trainer)
    (batch,) = trainer._buffered_inputs
    wild = int(batch["completion_mask"][:3].sum())
    usual = gradient(trainer)
    old, advantages = batch["old_per_token_logps"].clone(), batch["advantages"]
    batch["old_per_token_logps"][:3] += off
    trainer._step = 1  # the second pass once more
    found = gradient(trainer)
    batch["old_per_token_logps"] = old
    batch["advantages"] = torch.cat([torch.zeros_like(advantages[:3]), advantages[3:]])
    trainer._step = 1
    without = gradient(trainer)
    trainer.close()
    assert found.norm() > 0
    assert relative(found, without) < 1e-6
    assert relative(found, usual) > 1e-2
    assert trainer._metrics["train"]["wild_tokens"] == [0.0, 0.0, float(wild), 0.0]
    assert trainer._metrics["train"]["skipped_updates"] == [0.0] * 4


def test_an_unknown_log_probability_does_not_move_the_ratio_of_its_reply(
    folder, tmp_path, monkeypatch
):
    """GSPO has one ratio per reply: the tokens that are known make it, and are learned from."""
    trainer = make_trainer(
        folder, toy_config({"algorithm": "gspo", "optim.iterations": 2}), tmp_path
    )  # fmt: skip
    Scripted(monkeypatch, trainer, some_win)
    gradient(trainer)
    (batch,) = trainer._buffered_inputs
    batch["old_per_token_logps"][:, 0] = float("nan")
    found = gradient(trainer)
    trainer.close()
    assert found.norm() > 0
    figures = trainer._metrics["train"]
    assert figures["wild_tokens"] == [0.0, float(len(batch["prompt_ids"]))]
    assert figures["clip_ratio/region_mean"] == [0.0, 0.0]


# -- dynamic sampling --


def first_group_teaches(view):
    return "win" if view.group == 0 and view.member == 0 else "wait"


def test_equal_groups_are_played_again_on_new_tasks_and_then_masked(folder, tmp_path, monkeypatch):
    config = toy_config(SHORT | {"algorithm": "dapo", "rollout.max_rounds": 3})
    trainer = make_trainer(folder, config, tmp_path)
    scripted = Scripted(monkeypatch, trainer, first_group_teaches)
    batch = rollout_batch(trainer)
    trainer.close()
    seeds = [{v.group_seed for v in scripted.views if v.group == g} for g in (0, 1)]
    assert [len(found) for found in seeds] == [1, 3]
    figures = trainer._metrics["train"]
    assert figures["rounds"] == [3.0]
    assert figures["groups_kept"] == [0.5]
    steps = sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step))
    assert batch["completion_mask"].any(1).tolist() == [s.group == 0 for s in steps]
    assert figures["masked_samples"] == [8.0]


def test_a_group_that_teaches_in_a_later_round_is_used(folder, tmp_path, monkeypatch):
    config = toy_config(SHORT | {"algorithm": "dapo", "rollout.max_rounds": 5})
    trainer = make_trainer(folder, config, tmp_path)
    met = []

    def choose(view):
        if view.group == 1 and view.group_seed not in met:
            met.append(view.group_seed)
        late = view.group == 1 and met.index(view.group_seed) == 2
        return "win" if view.member == 0 and (late or view.group == 0) else "wait"

    Scripted(monkeypatch, trainer, choose)
    batch = rollout_batch(trainer)
    trainer.close()
    assert trainer._metrics["train"]["rounds"] == [3.0]
    assert batch["completion_mask"].any(1).all()
    assert {s.group: s.prompt.view.group_seed for s in trainer.last_rollout.steps}[1] == met[2]


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo"])
def test_the_loss_does_not_depend_on_how_many_groups_were_filtered(
    folder, tmp_path, monkeypatch, loss_type
):
    """F091."""
    found = []
    for groups in (1, 2, 5):
        config = toy_config(
            SHORT
            | {"algorithm": "dapo", "rollout.groups": groups, "rollout.max_rounds": 2,
               "loss.loss_type": loss_type, "loss.entropy_coef": 0.1}
        )  # fmt: skip
        trainer = make_trainer(folder, config, tmp_path / str(groups))
        Scripted(monkeypatch, trainer, first_group_teaches)
        found.append(gradient(trainer))
        trainer.close()
    assert found[0].norm() > 0
    assert relative(found[1], found[0]) < 2e-6
    assert relative(found[2], found[0]) < 2e-6


def test_three_updates_of_equal_groups_are_bounded_and_skipped(folder, tmp_path, monkeypatch):
    config = toy_config(SHORT | {"algorithm": "dapo", "run.updates": 3, "optim.weight_decay": 0.5})
    trainer = make_trainer(folder, config, tmp_path)
    scripted = Scripted(monkeypatch, trainer, lambda view: "win")
    before = weights(trainer.model)
    trainer.train()
    trainer.close()
    assert len(scripted.views) == 3 * 4 * 8  # updates x rounds x episodes of one step
    assert torch.equal(weights(trainer.model), before)
    for row in rows(trainer):
        assert (row["skipped_updates"], row["groups_kept"], row["rounds"]) == (1, 0, 4)
        assert row["success_rate"] == 1


# -- replies without an end, or without anything --


@pytest.mark.parametrize(
    "name", ["gigpo", "ppo", "ppo-episode", "dapo", "gspo", "reinforce_pp", "several-steps"]
)
def test_an_empty_reply_teaches_nothing_and_breaks_nothing(folder, tmp_path, monkeypatch, name):
    trainer = make_trainer(folder, toy_config(SHORT | VARIANTS[name]), tmp_path)

    def choose(view):
        if view.member == 1:
            return [] if view.step == 0 else "win"
        return "win" if view.member == 2 else "wait"

    Scripted(monkeypatch, trainer, choose)
    batch = rollout_batch(trainer)
    empty = torch.tensor(
        [not s.completion.token_ids
         for s in sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step))]
    )  # fmt: skip
    size = len(empty)
    assert int(empty.sum()) == 2
    assert not batch["completion_mask"][:size][empty].any()
    assert batch["completion_mask"][:size][~empty].any(1).all()
    assert trainer._metrics["train"]["masked_samples"] == [2.0]
    assert torch.isfinite(gradient(trainer)).all()
    trainer.close()


def cut_reply(trainer):
    """As many tokens as a reply may have, no end token, no action."""
    table = trainer.processing_class.get_vocab()
    return [table["<action>"]] * trainer.config.rollout.max_completion_tokens


@pytest.mark.parametrize("mask", [False, True])
def test_cut_replies_are_left_out_on_request(folder, tmp_path, monkeypatch, mask):
    trainer = make_trainer(folder, toy_config(SHORT | {"loss.mask_truncated": mask}), tmp_path)
    Scripted(
        monkeypatch,
        trainer,
        lambda view: cut_reply(trainer) if view.member == view.step == 0 else "win",
    )
    batch = rollout_batch(trainer)
    trainer.close()
    steps = sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step))
    cut = [s.completion.finish_reason == "length" for s in steps]
    assert sum(cut) == 2
    assert batch["completion_mask"].any(1).tolist() == [not c or not mask for c in cut]
    assert trainer._metrics["train"]["cut_rate"] == [pytest.approx(sum(cut) / len(steps))]
    assert not any(s.format_valid for s, c in zip(steps, cut, strict=True) if c)


@pytest.mark.parametrize("on_length", ["invalid", "truncate"])
def test_a_cut_reply_is_an_invalid_action_or_the_end(folder, tmp_path, monkeypatch, on_length):
    trainer = make_trainer(folder, toy_config(SHORT | {"agent.on_length": on_length}), tmp_path)
    Scripted(
        monkeypatch,
        trainer,
        lambda view: cut_reply(trainer) if view.replica == view.step == 0 else "win",
    )
    rollout_batch(trainer)
    trainer.close()
    first = trainer.last_rollout.trajectories()[0]
    assert len(first) == {"invalid": 2, "truncate": 1}[on_length]
    assert trainer._metrics["train"]["failed_episodes"] == [float(on_length == "truncate")]
    assert first[0].format_valid == (on_length == "truncate")


def test_overlong_penalty_has_dapos_numbers(folder, tmp_path, monkeypatch):
    """Limit 6, buffer 4, size 2: 0 up to two tokens, then half a point per token, -2 at the limit."""
    config = toy_config(
        {"algorithm": "grpo", "env.options.max_steps": 1, "rollout.groups": 1,
         "rollout.max_completion_tokens": 6, "loss.overlong_buffer": 4, "loss.overlong_penalty": 2.0,
         "advantage.norm": "mean", "advantage.invalid_penalty": 0.0}
    )  # fmt: skip
    trainer = make_trainer(folder, config, tmp_path)
    word = trainer.processing_class.get_vocab()["wait"]
    eos = trainer.processing_class.eos_token_id
    lengths = [2, 3, 5, 6]
    Scripted(monkeypatch, trainer, lambda v: [word] * (lengths[v.member] - 1) + [eos])
    batch = rollout_batch(trainer)
    trainer.close()
    assert batch["length"].tolist() == lengths
    penalty = np.array([0, -0.5, -1.5, -2.0])
    assert batch["advantages"].tolist() == pytest.approx((penalty - penalty.mean()).tolist())


# -- what is refused --


def test_a_model_without_trainable_parameters_is_refused(folder, tmp_path):
    """F106."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(OptionError, match="no parameter of the model is trainable"):
        make_trainer(model, toy_config(), tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [{"rollout.max_completion_tokens": 200}, {"rollout.max_completion_tokens": 128},
     {"agent.max_prompt_tokens": 126}],
)  # fmt: skip
def test_more_than_the_context_is_refused_with_the_numbers(folder, tmp_path, overrides):
    with pytest.raises(OptionError, match=r"more than the model's context of 128") as error:
        make_trainer(folder, toy_config(overrides), tmp_path)
    for number in overrides.values():
        assert str(number) in str(error.value)


def test_long_prompts_lose_whole_old_turns(folder, tmp_path, monkeypatch):
    config = toy_config(
        {"agent.prompt": {
            "first": "O:{observation}", "later": "{omitted}H:{history} O:{observation} N:{step_count}"
         },
         "agent.memory": {"name": "full"}, "agent.max_prompt_tokens": 60,
         "env.options.max_steps": 12}
    )  # fmt: skip
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, lambda view: "wait" if view.member or view.step < 11 else "win")
    batch = rollout_batch(trainer)
    trainer.close()
    assert trainer.last_rollout.failures == {}
    assert int(batch["prompt_mask"].sum(1).max()) <= 60
    omitted = {s.step: s.prompt.omitted for s in trainer.last_rollout.steps}
    assert omitted[0] == 0
    assert omitted[11] > omitted[5] > 0
    total = sum(s.prompt.omitted for s in trainer.last_rollout.steps)
    assert trainer._metrics["train"]["turns_omitted"] == [float(total)]


def test_a_prompt_that_fits_no_budget_closes_its_replica_only(folder, tmp_path, monkeypatch):
    config = toy_config({"agent.max_prompt_tokens": 6})
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, lambda view: "win")
    trainer.train()
    trainer.close()
    for row in rows(trainer):
        assert row["failed_episodes"] == 8
        assert row["skipped_updates"] == 1


# -- estimators --


@pytest.mark.parametrize("name", ["ppo", "ppo-episode", "reinforce_pp", "reinforce_pp-baseline"])
def test_advantages_are_whitened_over_the_tokens_that_count(folder, tmp_path, monkeypatch, name):
    config = toy_config(VARIANTS[name] | {"rollout.max_completion_tokens": 8})
    trainer = make_trainer(folder, config, tmp_path)

    Scripted(monkeypatch, trainer, lambda view: "raise" if view.replica == 5 else some_win(view))
    batch = rollout_batch(trainer)
    trainer.close()
    inside = batch["advantages"][batch["completion_mask"].bool()]
    assert float(inside.mean()) == pytest.approx(0, abs=1e-6)
    assert float(inside.std()) == pytest.approx(1, abs=1e-4)
    assert not batch["advantages"][~batch["completion_mask"].bool()].any()


def test_every_reply_of_an_episode_gets_its_outcome(folder, tmp_path, monkeypatch):
    """F095."""
    config = toy_config({"algorithm": "grpo", "rollout.groups": 1, "advantage.norm": "mean"})
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(
        monkeypatch, trainer, lambda v: "win" if v.member == 0 and v.step == 2 else "wait"
    )  # fmt: skip
    batch = rollout_batch(trainer)
    trainer.close()
    steps = sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step))
    expected = [0.75 if s.replica == 0 else -0.25 for s in steps]
    assert expected.count(0.75) == 3
    assert batch["advantages"].tolist() == pytest.approx(expected)


def test_rewards_of_replies_without_tokens_reach_earlier_replies_of_the_episode(
    folder, tmp_path, monkeypatch
):
    """PPO along the episode: a cut reply is left out of the loss, its reward is not.

    Member m of the group is cut in step m, which costs .25: the replies before it are told, or the
    next token where there are none.
    """
    config = toy_config(
        {"algorithm": "ppo", "advantage.chain": "episode", "advantage.whiten": False,
         "advantage.invalid_penalty": 0.25, "loss.mask_truncated": True, "env.options.max_steps": 3}
    )  # fmt: skip
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, lambda v: cut_reply(trainer) if v.step == v.member else "wait")
    batch = rollout_batch(trainer)
    trainer.close()
    for step, row, mask in zip(
        sorted(trainer.last_rollout.steps, key=lambda s: (s.trajectory, s.step)),
        batch["advantages"],
        batch["completion_mask"].bool(),
        strict=True,
    ):
        member, number = step.prompt.view.member, step.step
        expected = [-0.25 if number < member < 3 else 0.0] * int(mask.sum())
        if (member, number) == (0, 1):
            expected[0] = -0.25
        assert row[mask].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("chain", ["step", "episode"])
def test_the_critic_learns_a_constant_return(folder, tmp_path, monkeypatch, chain):
    config = toy_config(
        {"algorithm": "ppo", "advantage.chain": chain, "critic.learning_rate": 1e-2,
         "critic.value_clip": None, "run.updates": 12}
    )  # fmt: skip
    trainer = make_trainer(folder, config, tmp_path)
    Scripted(monkeypatch, trainer, lambda view: "win" if view.step == 1 else "wait")
    trainer.train()
    trainer.close()
    losses = [row["critic/loss"] for row in rows(trainer)]
    assert losses[0] == pytest.approx(1.0, abs=1e-5)  # values begin at 0, returns are 1
    assert losses[-1] < 0.1 * losses[0]


# -- the distance to the starting model --


def test_kl_is_zero_at_the_start_and_grows(folder, tmp_path):
    trainer = trained(
        folder, tmp_path, SHORT | {"algorithm": "grpo", "loss.kl_coef": 0.01, "rollout.groups": 4}
    )
    first, second = rows(trainer)
    assert first["kl"] == pytest.approx(0, abs=1e-7)
    assert second["kl"] > 1e-3
    assert trainer.beta == 0.01


def test_kl_in_the_reward_is_not_in_the_loss_too(folder, tmp_path):
    trainer = trained(
        folder,
        tmp_path,
        SHORT | {"algorithm": "reinforce_pp", "advantage.kl_in_reward": 0.1, "rollout.groups": 4},
    )
    first, second = rows(trainer)
    assert trainer.beta == 0
    assert "kl" not in first
    assert first["kl_reward"] == pytest.approx(0, abs=1e-7)
    assert abs(second["kl_reward"]) > 1e-3


@pytest.mark.parametrize(
    "overrides",
    [{"algorithm": "grpo", "loss.kl_coef": 0.01},
     {"algorithm": "reinforce_pp", "advantage.kl_in_reward": 0.01}],
)  # fmt: skip
def test_the_reference_of_a_trained_adapter_is_that_adapter(folder, tmp_path, overrides):
    """F107: not the model below it."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    model = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(folder),
        peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=4, init_lora_weights=False),
    )
    trainer = make_trainer(model, toy_config(SHORT | overrides), tmp_path)
    batch = rollout_batch(trainer)
    now = trainer._log_probs(batch)
    with model.disable_adapter():
        base = trainer._log_probs(batch)
    trainer.close()
    assert torch.equal(batch["ref_per_token_logps"], now)
    assert float((base - now).abs().max()) > 1e-3
