"""How a model folder becomes a model: its number format, attention kernel and LoRA adapter."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils.logging import disable_progress_bar

from agent_envs.core.errors import MissingExtra, OptionError, one_of
from agent_envs.core.machine import cpu_has_bfloat16
from trainers.trl_adapter.config import LoraConfig, ModelConfig
from trainers.trl_adapter.vision import is_vision

ADAPTER = "adapter_config.json"
_KERNELS = {  # attention implementation -> the package that it comes from
    "flash_attention_2": "flash_attn",
    "flash_attention_3": "flash_attn_interface",
}
_ATTENTION = ("sdpa", "eager", "flex_attention", *_KERNELS, "flash_attention_4")
_PROJECTIONS = (  # linear modules of Llama's and Qwen3's layers
    "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"
)  # fmt: skip


def dtype_of(name: str, trained: bool = True) -> torch.dtype:
    """``float32`` and so on as torch's.

    ``auto``: float32 for weights that are trained, whose small steps bfloat16 would round away (a GPU still
    computes in bfloat16, by autocast); for frozen ones (``trained=False``, below an adapter) bfloat16 where
    the device computes in it, which a CPU without AMX or AVX512-BF16 only emulates, eight times slower.
    """
    if name == "auto":
        name = "float32" if trained or not has_bfloat16() else "bfloat16"
    found: torch.dtype = getattr(torch, name)
    return found


def has_bfloat16() -> bool:
    """Does the GPU, or the CPU where there is none, compute in bfloat16 itself."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return cpu_has_bfloat16()


def autocasts() -> bool:
    """Does training compute in bfloat16 beside float32 weights: on GPUs that have it."""
    return torch.cuda.is_available() and has_bfloat16()


def quiet() -> None:
    """No bars of single files that are read, and of rows that are prepared, beside our own."""
    disable_progress_bar()
    disable_progress_bars()


def check_loading(model: ModelConfig, lora: LoraConfig) -> None:
    """OptionError or MissingExtra for what cannot be loaded here, before anything is.

    A kernel or quantization whose package or GPU is missing; LoRA without peft.
    """
    attention = model.attn_implementation
    if "/" not in attention:  # else a kernel from a hub
        one_of("model.attn_implementation", attention, _ATTENTION)
    package = _KERNELS.get(attention)
    if package and importlib.util.find_spec(package) is None:
        raise OptionError(
            f"model.attn_implementation {attention} needs the package {package}, which is "
            "not installed (pip install flash-attn needs a CUDA GPU and nvcc); sdpa needs nothing"
        )
    if lora.rank and importlib.util.find_spec("peft") is None:
        raise MissingExtra("LoRA", "lora")
    if model.quantization is None:
        return
    if not lora.rank:
        raise OptionError(
            f"model.quantization {model.quantization} freezes the weights: it needs lora.rank above 0"
        )
    if not torch.cuda.is_available() or importlib.util.find_spec("bitsandbytes") is None:
        raise OptionError(
            f"model.quantization {model.quantization} needs a CUDA GPU and pip install bitsandbytes; "
            "leave it out to train LoRA on unquantized weights"
        )


def is_adapter(folder: str | Path) -> bool:
    """Is this the folder of a PEFT adapter rather than of a whole model."""
    return (Path(folder) / ADAPTER).is_file()


def load_causal(folder: str | Path, model: ModelConfig, lora: LoraConfig) -> Any:
    """The policy of ``folder``; an adapter's folder comes with the model that it was trained on.

    Raises:
        OptionError: LoRA modules that the model does not have, or a second adapter on top of one.
    """
    check_loading(model, lora)
    adapter = is_adapter(folder)
    options: dict[str, Any] = {
        "dtype": dtype_of(model.dtype, trained=not (adapter or lora.rank)),
        "attn_implementation": model.attn_implementation,
    }
    if model.quantization is not None:
        options["quantization_config"] = _quantization(model.quantization)
    if adapter:
        if lora.rank:
            raise OptionError(
                f"{folder} is an adapter and trains on as such: leave out lora.rank ({lora.rank}), or merge "
                "it first (peft's merge_and_unload) and start from the merged model"
            )
        from peft import AutoPeftModelForCausalLM

        return AutoPeftModelForCausalLM.from_pretrained(folder, is_trainable=True, **options)
    if lora.rank:
        check_targets(folder, lora)
    return _kind(AutoConfig.from_pretrained(folder)).from_pretrained(folder, **options)


def _kind(config: Any) -> Any:
    return AutoModelForImageTextToText if is_vision(config) else AutoModelForCausalLM


def _quantization(name: str) -> Any:
    from transformers import BitsAndBytesConfig

    if name == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True,
    )  # fmt: skip


def peft_config(lora: LoraConfig) -> Any:
    """PEFT's configuration of a new adapter; None without LoRA."""
    if not lora.rank:
        return None
    try:
        from peft import LoraConfig as Peft
    except ImportError:
        raise MissingExtra("LoRA", "lora") from None
    return Peft(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, bias="none",
        target_modules=_targets(lora), task_type="CAUSAL_LM",
    )  # fmt: skip


def _targets(lora: LoraConfig) -> str | list[str]:
    return "all-linear" if lora.targets == ["all-linear"] else list(lora.targets)


def check_projections(lora: LoraConfig, model: str) -> None:
    """:func:`check_targets` without a folder, for ``tiny`` and ``smollm2``: by the last part of names."""
    for target in lora.targets if lora.rank else ():
        if target != "all-linear" and target.rpartition(".")[2] not in _PROJECTIONS:
            raise OptionError(
                f"lora.targets: {target!r} matches no linear module of {model}; valid: all-linear, "
                f"{', '.join(_PROJECTIONS)}"
            )


def check_targets(folder: str | Path, lora: LoraConfig) -> None:
    """OptionError where ``lora.targets`` names no module of the model; reads the configuration only."""
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = _kind(config).from_config(config)
    linear = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    names = sorted({name.rpartition(".")[2] for name in linear} - {"lm_head"})
    for target in lora.targets:
        if target != "all-linear" and not any(
            name == target or name.endswith(f".{target}") for name in linear
        ):
            raise OptionError(
                f"lora.targets: {target!r} matches no linear module of {config.model_type}; valid: "
                f"all-linear, {', '.join(names)}"
            )
        if target == "lm_head":
            raise OptionError("lora.targets: an adapter of lm_head would never be trained by TRL")
