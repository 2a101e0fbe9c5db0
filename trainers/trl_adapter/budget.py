"""Does a run fit: the memory of a configuration, as a table, and a refusal where it clearly does not."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_envs.core import OptionError
from agent_envs.core.machine import available_ram
from trainers.trl_adapter import seam, smollm2
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.loading import (
    ADAPTER,
    check_loading,
    dtype_of,
    has_bfloat16,
    is_adapter,
)
from trainers.trl_adapter.memory import GB, SHARDINGS, Estimate, Load, ModelShape, estimate
from trainers.trl_adapter.models import (
    BUILT_HERE,
    check_context,
    check_model,
    configuration,
    is_hub_id,
    model_folder,
)
from trainers.trl_adapter.presets import preset_of
from trainers.trl_adapter.shapes import shape_of

GPU_BYTES = 80e9  # what the tables are about
_QUANTIZED = {"4bit": 0.55, "8bit": 1.05}  # bytes of a weight with its scales
_SMOLLM2 = {  # before it is converted; public facts of SmolLM2-135M
    "hidden": 576, "layers": 30, "heads": 9, "keys": 3, "intermediate": 1536, "vocabulary": 49152
}  # fmt: skip
_ADVICE = (
    "lora.rank 16, model.quantization 4bit (with LoRA), a smaller optim.micro_batch_tokens or "
    "rollout.rows_per_generation, model.gradient_checkpointing true, or more GPUs with "
    "examples/accelerate/zero3.yaml"
)


@dataclass(frozen=True)
class Machine:
    """Where a run would take place.

    Args:
        name: for messages.
        memory: bytes for one process.
        gpu: computes in bfloat16 by autocast, and uses TRL's chunked head.
    """

    name: str
    memory: float
    gpu: bool
    processes: int = 1
    sharding: str = "ddp"


def gpus(processes: int = 1, sharding: str = "ddp", memory: float = GPU_BYTES) -> Machine:
    """GPUs that compute in bfloat16, ``memory`` bytes each."""
    how = "" if processes == 1 else f", {sharding}"
    name = f"{processes} x {memory / GB:.0f}-GB GPU{how}"
    return Machine(name, memory, gpu=True, processes=processes, sharding=sharding)


def this_machine() -> Machine:
    """The device of this process: its GPU's memory, else its share of the RAM that is available."""
    state = seam.processes()
    count = int(state.num_processes)
    if torch.cuda.is_available():
        memory = float(torch.cuda.get_device_properties(state.device).total_memory)
        return Machine("this GPU", memory, has_bfloat16(), count, _sharding(state))
    return Machine("this CPU", available_ram() / count, False, count, _sharding(state))


def _sharding(state: Any) -> str:
    kind = str(state.distributed_type).rpartition(".")[2]
    if kind == "FSDP":
        return "zero3"
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "") if kind == "DEEPSPEED" else ""
    return f"zero{stage}" if f"zero{stage}" in SHARDINGS else "ddp"


def model_shape(config: TrainConfig) -> ModelShape | None:
    """Of the run's model, without its weights; None for those built here, which fit anywhere.

    Raises:
        OptionError: neither this machine, the table nor the hub knows the model.
    """
    path = config.model.path
    if path in BUILT_HERE:
        return None
    if path == smollm2.NAME:
        return _smollm2_shape()
    if not is_hub_id(path):
        model_folder(config, Path())  # its error for a path that is no model
    return shape_of(configuration(path))


def _smollm2_shape() -> ModelShape:
    from transformers import LlamaConfig

    size = _SMOLLM2
    return shape_of(
        LlamaConfig(
            hidden_size=size["hidden"], num_hidden_layers=size["layers"],
            num_attention_heads=size["heads"], num_key_value_heads=size["keys"],
            intermediate_size=size["intermediate"], vocab_size=size["vocabulary"],
            max_position_embeddings=smollm2.CONTEXT, tie_word_embeddings=True,
        )
    )  # fmt: skip


def check_offline(config: TrainConfig) -> int:
    """:func:`~trainers.trl_adapter.models.check_model` without reaching a hub for a known model.

    Returns the longest prompt in tokens.
    """
    path = config.model.path
    if not is_hub_id(path):
        return check_model(config)
    check_loading(config.model, config.lora)
    shape = shape_of(configuration(path))
    for target in config.lora.targets if config.lora.rank else ():
        if not shape.adapter(1, [target]):
            names = sorted({x.name.rpartition(".")[2] for x in shape.linears})
            raise OptionError(
                f"lora.targets: {target!r} matches no linear module of {shape.kind}; valid: "
                f"all-linear, {', '.join(names)}"
            )
    return check_context(config, shape.context)


def load_of(config: TrainConfig, shape: ModelShape, machine: Machine) -> Load:
    """What a resolved run does with a model of this shape on a process of a machine."""
    rollout = config.rollout
    adapter = _adapter(config, shape)
    critic = "none"
    if preset_of(config.algorithm).critic:
        critic = "shared" if config.critic.share_trunk else "own"
    replicas = -(-rollout.groups * rollout.group_size // machine.processes)
    played = max(replicas, config.eval.num_envs if config.eval.every else 0)
    compute = 2.0 if machine.gpu and config.trl.get("bf16", True) else 4.0
    return Load(
        weight=_bytes(config, machine, trained=False),
        # PEFT keeps an adapter in float32, except that TRL trains one over quantized weights in bfloat16
        trained=(2.0 if config.model.quantization else 4.0) if adapter
        else _bytes(config, machine, trained=True),
        compute=compute,
        adapter=adapter,
        reference=bool(config.loss.kl_coef or config.advantage.kl_in_reward),
        critic=critic,
        checkpointing=config.model.gradient_checkpointing,
        eager=config.model.attn_implementation == "eager",
        fused_head=machine.gpu,
        micro_batch_tokens=config.optim.micro_batch_tokens,
        prompt=check_context(config, shape.context),
        reply=rollout.max_completion_tokens,
        rows=min(rollout.rows_per_generation, played),
    )  # fmt: skip


def _adapter(config: TrainConfig, shape: ModelShape) -> int:
    """Parameters of the adapter that is trained: a new one, or that of the folder; 0 without."""
    if config.lora.rank:
        return shape.adapter(config.lora.rank, config.lora.targets)
    if not is_adapter(config.model.path):
        return 0
    told = json.loads((Path(config.model.path) / ADAPTER).read_text(encoding="utf-8"))
    targets = told["target_modules"]
    return shape.adapter(told["r"], [targets] if isinstance(targets, str) else targets)


def _bytes(config: TrainConfig, machine: Machine, trained: bool) -> float:
    if not trained and config.model.quantization is not None:
        return _QUANTIZED[config.model.quantization]
    if config.model.dtype == "auto" and machine.gpu:
        return 4.0 if trained else 2.0  # as on a GPU, whatever this machine has
    return float(dtype_of(config.model.dtype, trained).itemsize)


def needed(config: TrainConfig, shape: ModelShape, machine: Machine) -> Estimate:
    """Bytes of one process on a machine."""
    load = load_of(config, shape, machine)
    return estimate(shape, load, processes=machine.processes, sharding=machine.sharding)


def fewest_gpus(
    config: TrainConfig, shape: ModelShape, sharding: str, memory: float = GPU_BYTES, most: int = 64
) -> int | None:
    """The smallest power of two of GPUs that a run fits; None where ``most`` are too few."""
    count = 1
    while count <= most:
        if needed(config, shape, gpus(count, sharding)).fits(memory):
            return count
        count *= 2
    return None


_COLUMNS = ("weights", "gradients", "optimizer", "reference", "critic", "training", "generation",
            "total")  # fmt: skip


def report(config: TrainConfig, processes: int = 8) -> str:
    """The estimate of a resolved run as lines of text, in GB per process."""
    shape = model_shape(config)
    if shape is None:
        return "memory: `tiny` fits anywhere"
    adapter = _adapter(config, shape)
    count = [1] if processes == 1 else [1, processes]
    machines = [this_machine()]
    machines += [gpus(n, how) for n in count for how in (SHARDINGS if n > 1 else ("ddp",))]
    lines = [
        f"model: {config.model.path} ({shape.kind}), {shape.parameters:,} parameters"
        + (f", {shape.vision:,} of them in the vision tower" if shape.vision else "")
        + (f", {adapter:,} trained (LoRA)" if adapter else ""),
        "memory in GB per process, an upper bound (docs/hardware.md):",
        " ".join([f"{'':<24}", *(f"{name:>10}" for name in _COLUMNS)]),
    ]  # fmt: skip
    for machine in machines:
        found = needed(config, shape, machine)
        figures = (f"{getattr(found, name) / GB:>10.2f}" for name in _COLUMNS)
        lines.append(" ".join([f"{machine.name:<24}", *figures]))
    few = (f"{how} {fewest_gpus(config, shape, how) or 'never'}" for how in SHARDINGS)
    lines.append(f"80-GB GPUs that it takes: {', '.join(few)}")
    shortage = too_little(config, shape, machines[0])
    return "\n".join([*lines, *([f"warning: {shortage}"] if shortage else [])])


def too_little(
    config: TrainConfig, shape: ModelShape, machine: Machine, certain: bool = False
) -> str | None:
    """One line on what is missing, or None.

    Args:
        certain: count only what stays in memory whatever is played, not the longest prompts.
    """
    found = needed(config, shape, machine)
    wanted = found.fixed if certain else found.total
    if wanted <= machine.memory:
        return None
    kept = "weights, gradients, optimizer, reference and critic"
    what = f"{kept} alone take" if certain else "the run needs up to"
    return (
        f"{what} {wanted / GB:.1f} GB per process, {machine.name} has {machine.memory / GB:.1f} GB; "
        f"possible: {_ADVICE}"
    )


def check_memory(config: TrainConfig) -> None:
    """OptionError where even weights, gradients and optimizer exceed this machine's memory.

    Long prompts may exceed it too: they are an upper bound, so that they are no reason to refuse.
    """
    if config.run.ignore_memory:
        return
    shape = model_shape(config)
    shortage = shape and too_little(config, shape, this_machine(), certain=True)
    if shortage:
        raise OptionError(f"too little memory: {shortage}; run.ignore_memory true tries anyway")
