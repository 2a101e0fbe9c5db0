"""The memory estimate against published counts, and against a model that really takes a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

from peft import get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from agent_envs.core import OptionError
from tests.conftest import ROOT
from tests.training import toy_config
from trainers.trl_adapter import budget, command, run
from trainers.trl_adapter.budget import Machine, gpus, needed
from trainers.trl_adapter.config import LoraConfig, from_dict, with_overrides
from trainers.trl_adapter.loading import peft_config
from trainers.trl_adapter.logprobs import reply_log_probs
from trainers.trl_adapter.memory import Load, estimate
from trainers.trl_adapter.presets import resolve
from trainers.trl_adapter.shapes import configuration_of, from_table, known_models, shape_of

PUBLISHED = {  # totals of the models' cards and safetensors indices
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
}
SMALL = Qwen2Config(
    vocab_size=4096, hidden_size=384, intermediate_size=1536, num_hidden_layers=12,
    num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip
ROWS, PROMPT, REPLY = 2, 96, 32
CPU = Load(
    weight=4, trained=4, compute=4, adapter=0, reference=False, critic="none", checkpointing=False,
    eager=False, fused_head=False, micro_batch_tokens=ROWS * (PROMPT + REPLY), prompt=PROMPT,
    reply=REPLY, rows=ROWS,
)  # fmt: skip


def test_the_table_is_complete():
    assert known_models().keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_models_have_their_published_number_of_parameters(name):
    assert shape_of(from_table(name)).parameters == PUBLISHED[name]


def test_a_configuration_on_this_machine_wins_over_the_table(tmp_path):
    Qwen2ForCausalLM(replace_layers(SMALL, 1)).config.save_pretrained(tmp_path)
    config = toy_config({"model.path": str(tmp_path)})
    assert budget.model_shape(config).layers == 1


def replace_layers(config: Qwen2Config, layers: int) -> Qwen2Config:
    return Qwen2Config(**{**config.to_dict(), "num_hidden_layers": layers, "layer_types": None})


class Saved:
    """Bytes that autograd keeps for the backward pass, besides the weights."""

    def __init__(self, model):
        self._known = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._held = []  # alive, so that no address is used twice
        self.bytes = 0

    def pack(self, tensor):
        place = tensor.untyped_storage()
        if place.data_ptr() not in self._known:
            self._known.add(place.data_ptr())
            self._held.append(tensor)
            self.bytes += place.nbytes()
        return tensor

    @staticmethod
    def unpack(tensor):
        return tensor


def step(model):
    """One training step of AdamW; (bytes kept by the forward pass, the optimizer)."""
    ids = torch.randint(0, SMALL.vocab_size, (ROWS, PROMPT + REPLY))
    saved = Saved(model)
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        chosen, _ = reply_log_probs(
            model, ids, torch.ones_like(ids), REPLY, temperature=1.0, entropy=False,
            entropy_gradient=False,
        )  # fmt: skip
    chosen.sum().backward()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    optimizer.step()
    return saved.bytes, optimizer


def size(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("rank", [0, 8])
def test_weights_gradients_and_moments_are_exact_and_activations_close(rank):
    torch.manual_seed(0)
    shape, model = shape_of(SMALL), Qwen2ForCausalLM(SMALL)
    load = CPU
    if rank:
        model = get_peft_model(model, peft_config(LoraConfig(rank=rank)))
        load = replace(CPU, adapter=shape.adapter(rank))
    found = estimate(shape, load)
    kept, optimizer = step(model.train())
    moments = [v for s in optimizer.state.values() for n, v in s.items() if n.startswith("exp_")]
    assert shape.parameters > 20e6
    assert size(model.parameters()) == found.weights
    assert size(p.grad for p in model.parameters() if p.grad is not None) == found.gradients
    assert size(moments) == found.optimizer
    assert kept <= found.training <= 1.4 * kept, (kept, found.training)


def test_checkpointing_is_estimated_close_to_what_is_kept():
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(SMALL).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    kept, _ = step(model)
    shape = shape_of(SMALL)
    found = estimate(shape, replace(CPU, checkpointing=True))
    one_layer = (
        estimate(shape, CPU).training - found.training + 4 * SMALL.hidden_size * 256 * 12
    ) / 11
    assert kept <= found.training <= 1.6 * (kept + one_layer), (kept, one_layer, found.training)
    assert found.training < 0.6 * estimate(shape, CPU).training


def peak_of_a_step(model, rows: int, vocabulary: int) -> int:
    """Bytes in use at most during a forward and backward pass, besides weights and gradients."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    ids = torch.randint(0, vocabulary, (rows, PROMPT + REPLY))
    watched = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=watched, profile_memory=True) as profile:
        chosen, _ = reply_log_probs(
            model, ids, torch.ones_like(ids), REPLY, temperature=1.0, entropy=False,
            entropy_gradient=False,
        )  # fmt: skip
        chosen.sum().backward()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    used = most = 0
    for event in events:
        used += event.nbytes()
        most = max(most, used)
    return most


@pytest.mark.parametrize(
    ("rows", "vocabulary", "rank", "checkpointing"),
    [(2, 4096, 0, False), (8, 32768, 0, False), (8, 32768, 0, True), (8, 32768, 8, False)],
)
def test_the_real_peak_of_a_step_is_close_to_the_estimate(rows, vocabulary, rank, checkpointing):
    torch.manual_seed(0)
    config = Qwen2Config(**{**SMALL.to_dict(), "vocab_size": vocabulary})
    model, shape = Qwen2ForCausalLM(config).train(), shape_of(config)
    load = replace(
        CPU, rows=rows, micro_batch_tokens=rows * (PROMPT + REPLY), checkpointing=checkpointing
    )
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if rank:
        model = get_peft_model(model, peft_config(LoraConfig(rank=rank)))
        load = replace(load, adapter=shape.adapter(rank))
    real, expected = peak_of_a_step(model, rows, vocabulary), estimate(shape, load).training
    assert 0.95 * real <= expected <= 1.4 * real, expected / real


def test_the_cache_of_generation_is_exact():
    from transformers import DynamicCache

    model, cache = Qwen2ForCausalLM(SMALL), DynamicCache(config=SMALL)
    with torch.no_grad():
        model(torch.zeros(ROWS, PROMPT, dtype=torch.long), past_key_values=cache)
    real = size(t for layer in cache.layers for t in (layer.keys, layer.values))
    without = replace(CPU, prompt=0, reply=PROMPT)
    logits = ROWS * SMALL.vocab_size * 8
    assert estimate(shape_of(SMALL), without).generation == real + logits


# -- a run's configuration --


def big(**overrides):
    values = {"model": {"path": "Qwen/Qwen2.5-7B-Instruct"}, "agent": {"max_prompt_tokens": 512}}
    return resolve(with_overrides(from_dict(values), overrides))


def cpu(memory: float) -> Machine:
    return Machine("this CPU", memory, gpu=False)


def test_what_lowers_memory_lowers_the_estimate():
    shape = shape_of(configuration_of("Qwen/Qwen2.5-7B-Instruct"))
    plain = needed(big(), shape, gpus())
    assert (
        needed(big(**{"model.gradient_checkpointing": True}), shape, gpus()).training
        < plain.training
    )
    assert (
        needed(big(**{"optim.micro_batch_tokens": 4096}), shape, gpus()).training < plain.training
    )
    assert needed(big(rows_per_generation=8), shape, gpus()).generation < plain.generation
    lora = needed(big(**{"lora.rank": 16}), shape, gpus())
    assert lora.optimizer < 0.01 * plain.optimizer
    four = needed(big(**{"lora.rank": 16, "model.quantization": "4bit"}), shape, gpus())
    assert four.weights < 0.4 * lora.weights
    assert needed(big(kl_coef=0.01), shape, gpus()).reference == plain.weights
    assert needed(big(**{"lora.rank": 16, "loss.kl_coef": 0.01}), shape, gpus()).reference == 0
    eight = needed(big(), shape, gpus(8, "zero3"))
    assert eight.optimizer == plain.optimizer / 8
    assert eight.weights == plain.weights / 8
    assert needed(big(), shape, gpus(8, "zero2")).weights == plain.weights
    assert needed(big(), shape, gpus(8, "ddp")).gradients == 2 * plain.gradients
    own = needed(big(algorithm="ppo"), shape, gpus(8, "zero3")).critic
    assert own == 16 * (7_615_616_512 - 152_064 * 3584 + 3584 + 1)  # no head, not divided
    shared = big(algorithm="ppo", **{"critic.share_trunk": True, "lora.rank": 16})
    assert needed(shared, shape, gpus()).critic < 0.05 * own


def test_too_little_memory_is_refused_before_anything_is_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "this_machine", lambda: cpu(24e9))
    config = with_overrides(big(), {"run.output_dir": str(tmp_path / "run")})
    with pytest.raises(
        OptionError, match=r"too little memory.* 121\.8 GB .*has 24\.0 GB.*lora"
    ) as e:
        run.train(config)
    for way in (
        "quantization",
        "micro_batch_tokens",
        "gradient_checkpointing",
        "zero3",
        "ignore_memory",
    ):
        assert way in str(e.value)
    assert "\n" not in str(e.value)
    assert not (tmp_path / "run").exists()
    budget.check_memory(with_overrides(config, {"run.ignore_memory": True}))
    monkeypatch.setattr(budget, "this_machine", lambda: cpu(125e9))
    budget.check_memory(config)  # long prompts may not fit: no reason to refuse


def test_a_dry_run_only_warns(monkeypatch, capsys):
    monkeypatch.setattr(budget, "this_machine", lambda: cpu(24e9))
    assert command.main(["--dry-run", "--model.path", "Qwen/Qwen2.5-7B-Instruct",
                     "--max_prompt_tokens", "512"]) == 0  # fmt: skip
    said = capsys.readouterr().out
    assert "Qwen2ForCausalLM" in said
    assert "warning: the run needs" in said
    assert "8 x 80-GB GPU, zero3" in said


@pytest.mark.parametrize("example", ["gigpo", "pictures"])
def test_a_dry_run_writes_nothing(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(["--dry-run", "--config", str(ROOT / f"examples/cpu/{example}.yaml")]) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_model_is_named_with_the_known_ones():
    with pytest.raises(OptionError, match=r"Nobody/None.*known without a hub: Qwen/Qwen2.5-0.5B"):
        run.check(toy_config({"model.path": "Nobody/None"}), offline=True)
    with pytest.raises(OptionError, match="context"):
        run.check(big(**{"agent.max_prompt_tokens": 40_000}), offline=True)
    with pytest.raises(OptionError, match=r"'wq' matches no linear module.*q_proj"):
        run.check(big(**{"lora.rank": 4, "lora.targets": ["wq"]}), offline=True)


def test_available_ram_is_read_in_bytes(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   2048 kB\n")
    assert budget.available_ram(tmp_path / "meminfo") == 2048 * 1024
    assert budget.available_ram(tmp_path / "absent") == float("inf")
    if Path("/proc/meminfo").exists():
        assert 1e8 < budget.available_ram() < 1e14


def test_the_hardware_page_is_current():
    from docs.hardware_table import PAGE, with_table

    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python docs/hardware_table.py"
    assert text.count("alfworld_7b_lora") == 2
