"""A model's shape from its configuration: local, or a table of known models where there is no hub."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from agent_envs.core import OptionError
from trainers.trl_adapter.memory import Linear, ModelShape

_TABLE = Path(__file__).with_name("known_models.json")


@cache
def known_models() -> dict[str, dict[str, Any]]:
    """Hub id -> fields of its configuration: public facts, for machines that reach no hub."""
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def configuration_of(name: str) -> Any:
    """The configuration of a hub id: this machine's copy, else the table's, else the hub's (one file).

    Raises:
        OptionError: none of the three has it.
    """
    try:
        return AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        pass  # not downloaded here
    if name in known_models():
        return from_table(name)
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(
            f"model.path {name!r}: its configuration is not on this machine, and the hub did not give it "
            f"({reason}); known without a hub: {', '.join(known_models())}"
        ) from error


def from_table(name: str) -> Any:
    """The configuration of a known model."""
    fields = dict(known_models()[name])
    return AutoConfig.for_model(fields.pop("model_type"), **fields)


def class_of(config: Any) -> Any:
    """The transformers class of a configuration: the one it names, else that of causal models.

    Raises:
        OptionError: transformers has none.
    """
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is not None:
            return found
    try:
        return AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise OptionError(
            f"a model of type {config.model_type} ({config.architectures}) is no language model that this "
            "version of transformers knows"
        ) from None


def shape_of(config: Any) -> ModelShape:
    """Counted on the meta device: the real modules, without their numbers."""
    made_of: Any = type(config)
    return _counted(made_of, config.to_json_string(use_diff=False))


@lru_cache(maxsize=32)
def _counted(kind_of_config: Any, text: str) -> ModelShape:
    config = kind_of_config.from_dict(json.loads(text))
    kind = class_of(config)
    with torch.device("meta"):
        model = kind(config)
    head = model.get_output_embeddings()
    tied = head is None or head.weight is model.get_input_embeddings().weight
    body = config.get_text_config()
    size = getattr(body, "head_dim", None) or body.hidden_size // body.num_attention_heads
    keys = getattr(body, "num_key_value_heads", None) or body.num_attention_heads
    return ModelShape(
        kind=kind.__name__,
        parameters=sum(p.numel() for p in model.parameters()),
        head=0 if tied else head.weight.numel(),
        layers=body.num_hidden_layers,
        hidden=body.hidden_size,
        intermediate=getattr(body, "intermediate_size", None) or 4 * body.hidden_size,
        attention=body.num_attention_heads * size,
        keys=keys * size,
        heads=body.num_attention_heads,
        vocabulary=body.vocab_size,
        linears=tuple(
            Linear(name, module.in_features, module.out_features)
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and module is not head
        ),
        context=getattr(body, "max_position_embeddings", None),
        vision=sum(p.numel() for name, p in model.named_parameters() if "visual." in name),
    )
