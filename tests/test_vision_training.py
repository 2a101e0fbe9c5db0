"""Training on pictures: a tiny random Qwen2.5-VL, from the prompt to the gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
pytest.importorskip("PIL", reason="needs the extra `vision`")
torch = pytest.importorskip("torch")

import agent_envs
from agent_envs.agent import AgentGroup, RandomPolicy
from agent_envs.core import OptionError
from tests.training import gradient, make_trainer, relative, weights
from trainers.trl_adapter import seam, vision
from trainers.trl_adapter.config import from_dict, with_overrides
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.run import check
from trainers.trl_adapter.tiny_vl import IMAGE

CONFIG = from_dict(
    {
        "algorithm": "grpo",
        "env": {
            "id": "AgentEnv/NumberLine-v0",
            "options": {"max_position": 2, "obs_mode": "image", "image_size": 64},
        },
        "agent": {
            "prompt": {"first": "{observation}", "later": "{history} Now: {observation}",
                       "turn": "{observation} {action}"},
            "memory": {"name": "window", "size": 2},
            "parser": {"name": "tags", "reason": "", "untagged": "action"},
        },
        "model": {"path": "tiny_vl", "hidden_size": 32, "layers": 1, "context": 128},
        "rollout": {"groups": 2, "group_size": 4, "max_completion_tokens": 3},
        # without a format penalty the first random replies would all earn the same
        "advantage": {"norm": "mean"},
        "optim": {"learning_rate": 1e-2},
        "eval": {"every": 0},
        "run": {"updates": 2, "save_every": 0, "log_to": [], "trajectories": 0, "progress": False},
    }
)  # fmt: skip
TOKENS = 64 * 64 // 16**2  # patches of 8 x 8, four of them make a token


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(CONFIG, tmp_path_factory.mktemp("vl"))


def trainer_of(folder, out, overrides=None):
    return make_trainer(folder, with_overrides(CONFIG, overrides or {}), out)


def played(**options):
    """Prompts with one to three pictures, and an agent to close."""
    group = agent_envs.make_group("AgentEnv/NumberLine-v0", 1, 4, max_position=5,
                                  obs_mode="image", image_size=64, **options)  # fmt: skip
    agent = AgentGroup(group)
    rollout = agent.rollout(RandomPolicy(0), seed=3)
    agent.close()
    return [step.prompt for step in rollout.steps]


def test_the_folder_is_a_function_of_the_seed(folder, tmp_path):
    again = model_folder(CONFIG, tmp_path / "again")
    other = model_folder(with_overrides(CONFIG, {"run.seed": 1}), tmp_path / "other")
    one, two, three = ((f / "model.safetensors").read_bytes() for f in (folder, again, other))
    assert one == two != three


def test_prompts_are_those_of_the_processor(folder):
    """Ids, patches and kinds equal what transformers' own processor makes of the same chat."""
    processor = vision.load_processor(folder, vision_config(folder))
    image_id = processor.tokenizer.convert_tokens_to_ids(IMAGE)
    encoder = vision.PictureEncoder(processor, image_id, {})
    prompts = played()
    assert {len(prompt.images) for prompt in prompts} == {1, 2, 3}
    for prompt, found in zip(prompts, encoder.encode(prompts), strict=True):
        text = processor.apply_chat_template(
            prompt.chat(), tokenize=False, add_generation_prompt=True
        )
        wanted = processor(text=[text], images=prompt.pil_images(), return_tensors="pt")
        assert found.ids == wanted["input_ids"][0].tolist()
        assert found.ids.count(image_id) == TOKENS * len(prompt.images)
        assert torch.equal(torch.cat([p.patches for p in found.pictures]), wanted["pixel_values"])
        assert torch.equal(torch.stack([p.grid for p in found.pictures]), wanted["image_grid_thw"])


def vision_config(folder):
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder)


def test_a_picture_passes_the_processor_once(folder, monkeypatch):
    processor = vision.load_processor(folder, vision_config(folder))
    encoder = vision.PictureEncoder(processor, processor.image_token_id, {})
    seen = []
    real = encoder._picture
    monkeypatch.setattr(encoder, "_picture", lambda image: seen.append(image) or real(image))
    prompts = played()
    encoder.encode(prompts)
    encoder.encode(prompts)
    distinct = {image.tobytes() for prompt in prompts for image in prompt.images}
    assert len(seen) == len(distinct) < sum(len(prompt.images) for prompt in prompts)


def test_text_that_looks_like_a_picture_is_text(folder):
    """The tiny model's template takes the token apart; with one that does not, the replica is closed."""
    processor = vision.load_processor(folder, vision_config(folder))
    encoder = vision.PictureEncoder(processor, processor.image_token_id, {})
    chat = [{"role": "user", "content": [{"type": "text", "text": f"{IMAGE} <|vision_start|>"}]}]
    assert encoder._encoded(chat, []).error is None
    processor.chat_template = "{{ messages[0]['content'][0]['text'] }}"
    assert "image token" in encoder._encoded(chat, []).error


def test_the_gradient_does_not_depend_on_micro_batches(folder, tmp_path, monkeypatch):
    """Rows with one, two and three pictures; cuts put them together in different ways."""

    def by_turns(trainer, prompt_ids, fields):
        table = trainer.processing_class.tokenizer.get_vocab()
        return [[table["+-"[i % 2]], table["<|end|>"]] for i in range(len(prompt_ids))], None

    monkeypatch.setattr(seam, "generate_single_turn", by_turns)
    found = {}
    for tokens in (1, 120, 10**6):
        trainer = trainer_of(
            folder, tmp_path / str(tokens),
            {"optim.micro_batch_tokens": tokens, "loss.entropy_coef": 0.3, "loss.kl_coef": 0.1},
        )  # fmt: skip
        found[tokens] = gradient(trainer)
        batch = trainer._buffered_inputs[0]
        trainer.close()
    assert set(batch["num_images"]) == {1, 2, 3}
    assert batch["advantages"].any()
    assert found[10**6].norm() > 0
    assert relative(found[1], found[10**6]) < 1e-6
    assert relative(found[120], found[10**6]) < 1e-6


def test_rows_without_pictures_go_beside_those_with_some(folder, tmp_path):
    """A batch scored whole, or row by row (where no image tower runs), has the same log-probabilities."""
    trainer = trainer_of(folder, tmp_path, {"rollout.group_size": 3})
    trainer.training_step(trainer.model, [{"prompt": ""}])
    samples = trainer.collector.collect(0).samples
    keep = np.arange(len(samples)) % 3 != 0
    ids = [row if k else [i for i in row if i != trainer._encoder.image_id]
           for row, k in zip(samples.prompt_ids, keep, strict=True)]  # fmt: skip
    pictures = [row if k else () for row, k in zip(samples.pictures, keep, strict=True)]
    from dataclasses import replace

    mixed = replace(samples, prompt_ids=ids, pictures=pictures)
    found = []
    for tokens in (1, 10**6):
        trainer.config = with_overrides(trainer.config, {"optim.micro_batch_tokens": tokens})
        found.append(trainer._log_probs(trainer._tensors(mixed)))
    assert 0 in trainer._tensors(mixed)["num_images"]
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    trainer.close()


def test_the_batch_keeps_what_was_sampled(folder, tmp_path):
    """After TRL's shuffle and split each row still has its own pictures; padding rows have none."""
    trainer = trainer_of(folder, tmp_path, {"optim.mini_batches": 5, "rollout.group_size": 3})
    trainer.training_step(trainer.model, [{"prompt": ""}])
    steps = {
        tuple(s.completion.prompt_ids) + tuple(s.completion.token_ids): s.completion.pictures
        for s in trainer.last_rollout.steps
    }
    # one picture differs from the next in its pixels only: compare those of equal ids as a set
    by_ids = {}
    for s in trainer.last_rollout.steps:
        key = (*s.completion.prompt_ids, *s.completion.token_ids)
        by_ids.setdefault(key, []).append(torch.cat([p.patches for p in s.completion.pictures]))
    assert steps
    rows = padding = 0
    for batch in trainer._buffered_inputs:
        for row in range(len(batch["prompt_ids"])):
            part = vision.pictures_of_rows(batch, torch.tensor([row]))
            if not batch["length"][row]:
                assert part == {}
                padding += 1
                continue
            ids = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
            ids += batch["completion_ids"][row][: batch["length"][row]].tolist()
            assert any(torch.equal(part["pixel_values"], p) for p in by_ids[tuple(ids)])
            kinds = batch["mm_token_type_ids"][row]
            assert kinds.sum() == ids.count(trainer._encoder.image_id)
            rows += 1
    assert rows == len(trainer.last_rollout.steps)
    assert padding == -rows % 5
    trainer.close()


def test_sampling_and_scoring_see_the_same_pictures(folder, tmp_path):
    """The likeliest replies, as generated, are the likeliest of the training forward pass."""
    trainer = trainer_of(folder, tmp_path)
    with trainer.sampling(1, temperature=0.0):
        samples = trainer.collector.collect(0).samples
    batch = trainer._tensors(samples)
    blind = {**batch, "pixel_values": torch.zeros_like(batch["pixel_values"])}
    scores = {}
    for name, part in {"seen": batch, "blind": blind}.items():
        with torch.no_grad():
            logits = trainer.model(
                input_ids=torch.cat([part["prompt_ids"], part["completion_ids"]], 1),
                attention_mask=torch.cat([part["prompt_mask"], part["completion_mask"]], 1),
                **{key: part[key] for key in vision.FORWARD},
            ).logits[:, part["prompt_ids"].shape[1] - 1 : -1]
        logits[..., vision.never_sampled(trainer.model.config)] = -torch.inf
        scores[name] = logits
    inside = batch["completion_mask"].bool()
    assert torch.equal(scores["seen"].argmax(-1)[inside], batch["completion_ids"][inside])
    assert not torch.allclose(scores["seen"][inside], scores["blind"][inside])
    trainer.close()


def test_image_tokens_are_never_sampled(folder, tmp_path):
    """Even a model that wants nothing else says something else, and the next forward pass is fine."""
    trainer = trainer_of(folder, tmp_path, {"trl.generation_kwargs": {"suppress_tokens": [7]}})
    forbidden = vision.never_sampled(trainer.model.config)
    assert len(forbidden) == 4
    head = trainer.model.get_output_embeddings()
    hook = head.register_forward_hook(
        lambda module, inputs, logits: logits.index_add(
            -1, torch.tensor([*forbidden, 7]), torch.full((*logits.shape[:-1], 5), 100.0)
        )
    )
    trainer.training_step(trainer.model, [{"prompt": ""}])
    hook.remove()
    said = {i for s in trainer.last_rollout.steps for i in s.completion.token_ids}
    assert said
    assert not said & {*forbidden, 7}
    trainer.close()


def test_pictures_are_counted_in_the_budget(folder, tmp_path):
    """A prompt for one picture and some words holds one: the older turns are left out, and counted."""
    whole = trainer_of(folder, tmp_path / "whole")
    image = np.zeros((64, 64, 3), np.uint8)
    size = whole._encoder.size_of(image)
    assert size == TOKENS + 2  # a mark at both ends
    whole.training_step(whole.model, [{"prompt": ""}])
    steps = whole.last_rollout.steps
    lengths = {len(s.prompt.images): len(s.completion.prompt_ids) for s in steps}
    longest = max(len(s.completion.prompt_ids) for s in steps)
    whole.close()
    assert set(lengths) == {1, 2, 3}
    for limits in ({"agent.max_prompt_tokens": lengths[1] + size}, {"agent.max_images": 1},
                   {"agent.max_pixels": 64 * 64}):  # fmt: skip
        trainer = trainer_of(folder, tmp_path / "less", limits)
        trainer.training_step(trainer.model, [{"prompt": ""}])
        steps = trainer.last_rollout.steps
        assert {len(s.prompt.images) for s in steps} == {1}, limits
        assert all(s.prompt.omitted == min(s.step, 2) for s in steps)
        trainer.close()
    # two more for seams; a bound by letters instead of tokens would leave out turns that fit
    trainer = trainer_of(folder, tmp_path / "just", {"agent.max_prompt_tokens": longest + 2})
    trainer.training_step(trainer.model, [{"prompt": ""}])
    assert max(len(s.completion.prompt_ids) for s in trainer.last_rollout.steps) == longest
    assert not any(s.prompt.omitted for s in trainer.last_rollout.steps)
    trainer.close()
    trainer = trainer_of(folder, tmp_path / "text", {"agent.history_images": False})
    trainer.training_step(trainer.model, [{"prompt": ""}])
    assert {len(s.prompt.images) for s in trainer.last_rollout.steps} == {1}
    assert trainer.last_rollout.steps[-1].prompt.omitted == 0
    trainer.close()


def test_text_games_are_played_without_an_image_tower(folder, tmp_path):
    trainer = trainer_of(folder, tmp_path, {"env.options": {"max_position": 2}})
    before = weights(trainer.model)
    trainer.train()
    assert "pixel_values" not in trainer._buffered_inputs[0]
    assert not torch.equal(weights(trainer.model), before)
    trainer.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.path": "tiny"}, "shows pictures and tiny reads text only"),
        ({"algorithm": "ppo"}, "critic reads text only"),
        ({"warm_start.episodes": 5}, "warm start shows no pictures"),
        ({"model.hidden_size": 40}, "multiple of 16, got 40; valid near it: 32, 48"),
        ({"agent.max_images": 0}, "max_images"),
    ],
)
def test_what_cannot_be_is_refused_before_the_model_is_built(changes, said, tmp_path):
    config = with_overrides(CONFIG, {"run.output_dir": str(tmp_path / "run"), **changes})
    with pytest.raises(OptionError, match=said):
        check(config)
    assert not (tmp_path / "run").exists()


def test_a_text_model_is_refused_by_the_trainer_too(tmp_path):
    text = with_overrides(CONFIG, {"model.path": "tiny"})
    folder = model_folder(text, tmp_path)
    with pytest.raises(OptionError, match="reads text only"):
        make_trainer(folder, text, tmp_path / "run")


def test_the_saved_model_goes_on(folder, tmp_path):
    """Weights, tokenizer and image processor come back from a trainer's folder."""
    trainer = trainer_of(folder, tmp_path / "run")
    trainer.training_step(trainer.model, [{"prompt": ""}])
    trainer.save_model(str(tmp_path / "final"))
    trainer.close()
    again = trainer_of(tmp_path / "final", tmp_path / "run2")
    assert torch.equal(weights(again.model), weights(trainer.model))
    prompts = played()
    for one, two in zip(again.policy.encode(prompts), trainer.policy.encode(prompts), strict=True):
        assert one.ids == two.ids
        assert torch.equal(one.pictures[-1].patches, two.pictures[-1].patches)
    again.close()
