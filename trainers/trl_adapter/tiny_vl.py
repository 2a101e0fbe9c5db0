"""``tiny_vl``: a tiny random Qwen2.5-VL with the word-level tokenizer of :mod:`.tiny`, for picture games.

An ordinary Hugging Face folder again (model, tokenizer, image processor). A picture is cut into patches of
8 x 8 pixels, 2 x 2 of them make a token: 64 x 64 pixels are 16 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from agent_envs.core.errors import OptionError
from trainers.trl_adapter.tiny import END, HEADS, ROLES, SPECIAL, check_sizes, tokenizer_of
from trainers.trl_adapter.vision import processor_without_video

NAME = "tiny_vl"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
VISION = (VISION_START, VISION_END, IMAGE, VIDEO)
PATCH, MERGE = 8, 2
VISION_LAYERS = 2
SPREAD = 0.2  # of the first weights: at the usual 0.02 so narrow a model sees all pictures alike

_DISARM = "".join(f".replace('{token}', '{token[0]} {token[1:]}')" for token in (*SPECIAL, *VISION))
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{{%- if message['role'] not in {list(ROLES)} -%}}"
    f"{{{{- raise_exception('unknown role; valid: {', '.join(ROLES)}') -}}}}"
    "{%- endif -%}"
    "{{- '<|' + message['role'] + '|>' -}}"
    f"{{%- if message['content'] is string -%}}{{{{- message['content']{_DISARM} -}}}}"
    "{%- else -%}{%- for part in message['content'] -%}"
    f"{{%- if part['type'] == 'image' -%}}{{{{- '{VISION_START}{IMAGE}{VISION_END}' -}}}}"
    f"{{%- else -%}}{{{{- part['text']{_DISARM} -}}}}{{%- endif -%}}"
    "{%- endfor -%}{%- endif -%}"
    f"{{{{- '{END}' -}}}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def build_tiny_vl(
    texts: Iterable[str],
    folder: str | Path,
    *,
    hidden_size: int = 128,
    layers: int = 3,
    context: int = 1024,
    seed: int = 0,
) -> Path:
    """Write an untrained model and its processor, with the words of ``texts``, into ``folder``.

    The same arguments give the same bytes; PyTorch's global generator is left alone. ``context`` is the
    longest prompt (image tokens included) plus answer.

    Raises:
        OptionError: sizes that make no model.
    """
    check_vision_sizes(hidden_size, layers, context)
    folder = Path(folder)
    tokenizer = _tokenizer(texts, context)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(_config(tokenizer, hidden_size, layers, context))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor_without_video(
        "Qwen2_5_VLProcessor", _image_processor(), tokenizer, CHAT_TEMPLATE
    ).save_pretrained(folder)
    return folder


def check_vision_sizes(hidden_size: int, layers: int, context: int) -> None:
    """OptionError for sizes that make no model."""
    check_sizes(hidden_size, layers, HEADS, context)
    if hidden_size % (4 * HEADS):  # a picture's places are pairs of numbers, height and width each
        near = max(hidden_size // (4 * HEADS), 1) * 4 * HEADS
        raise OptionError(
            f"hidden_size of tiny_vl must be a multiple of {4 * HEADS}, got {hidden_size}; valid near it: "
            f"{near}, {near + 4 * HEADS}"
        )


def _tokenizer(texts: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    tokenizer = tokenizer_of(texts, context)
    tokenizer.add_special_tokens(
        {"extra_special_tokens": [
            *(f"<|{role}|>" for role in ROLES),
            *(AddedToken(token, special=True, normalized=False) for token in VISION),
        ]}
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _image_processor() -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=MERGE, temporal_patch_size=2,
        min_pixels=(PATCH * MERGE) ** 2, max_pixels=(16 * PATCH * MERGE) ** 2,
    )  # fmt: skip


def _config(
    tokenizer: PreTrainedTokenizerFast, hidden_size: int, layers: int, context: int
) -> Qwen2_5_VLConfig:
    ids = dict(zip(VISION, tokenizer.convert_tokens_to_ids(list(VISION)), strict=True))
    half = hidden_size // HEADS // 2  # rotary pairs of a head, shared by time, height and width
    side = half // 3
    text = {
        "vocab_size": len(tokenizer), "hidden_size": hidden_size, "initializer_range": SPREAD,
        "intermediate_size": 2 * hidden_size, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
        "max_position_embeddings": context, "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10_000.0,
            "mrope_section": [half - 2 * side, side, side],
        },
    }  # fmt: skip
    vision = {
        "depth": VISION_LAYERS, "hidden_size": hidden_size, "out_hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size, "num_heads": HEADS, "patch_size": PATCH,
        "spatial_merge_size": MERGE, "temporal_patch_size": 2, "window_size": 4 * PATCH * MERGE,
        "fullatt_block_indexes": [VISION_LAYERS - 1], "initializer_range": SPREAD,
    }  # fmt: skip
    return Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True,
        image_token_id=ids[IMAGE], video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START], vision_end_token_id=ids[VISION_END],
        dtype="float32",
    )  # fmt: skip
