"""Vision-language models: prompts with pictures, from the processor to TRL's batch.

A picture passes the image processor once; the patches that the model saw when it sampled are those it is
trained on. Written for models whose processors lay pictures out on a grid of patches (Qwen2-VL,
Qwen2.5-VL): one placeholder id per picture in the rendered chat, repeated once per merged patch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import AutoImageProcessor, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from agent_envs.agent import Prompt
from agent_envs.agent.records import as_pil, image_part
from agent_envs.core import OptionError
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.policy import Encoded, ModelPolicy

FORWARD = ("pixel_values", "image_grid_thw", "mm_token_type_ids")
FIELDS = (*FORWARD, "num_images")  # as TRL's batch names them
_SPECIAL = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


class Picture(NamedTuple):
    """A picture as the model reads it: ``patches`` (n, D) float32, ``grid`` (3,) int64."""

    patches: Tensor
    grid: Tensor


def is_vision(model_config: Any) -> bool:
    """Does a model of this configuration read pictures beside text."""
    return getattr(model_config, "model_type", "") in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES


def check_vision(config: TrainConfig) -> None:
    """OptionError for what a vision-language model cannot be trained with here."""
    if config.algorithm == "ppo":
        raise OptionError(
            "ppo's critic reads text only: train a vision-language model with gigpo, grpo, dapo, gspo, "
            "rloo or reinforce_pp"
        )
    if config.warm_start.episodes:
        raise OptionError("the warm start shows no pictures: set warm_start.episodes: 0")
    if config.trl.get("use_vllm"):
        raise OptionError(
            "pictures are sampled with transformers' generate: leave out trl.use_vllm"
        )


def check_pictures(space: gymnasium.Space[Any], reads_pictures: bool, model: str) -> None:
    """OptionError for observations (of ``space``) with pictures and a model without eyes."""
    if shows_pictures(space) and not reads_pictures:
        raise OptionError(
            f"the environment shows pictures and {model} reads text only: set env.options.obs_mode: text, "
            "or take a vision-language model (model.path: tiny_vl builds a small one)"
        )


def shows_pictures(space: gymnasium.Space[Any]) -> bool:
    """Are there pictures (arrays of height, width, 3) in the observations of ``space``."""
    if isinstance(space, gymnasium.spaces.Dict):
        return any(map(shows_pictures, space.spaces.values()))
    return isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 3


class _WithoutVideo:
    """Leaves out a processor's video part, whose class needs torchvision."""

    @classmethod
    def get_attributes(cls) -> list[str]:
        names: list[str] = super().get_attributes()  # type: ignore[misc]
        return [name for name in names if "video" not in name]


def processor_without_video(
    class_name: str, image_processor: Any, tokenizer: Any, chat_template: str
) -> Any:
    """A processor of transformers' class ``class_name`` for text and pictures."""
    base = getattr(transformers, class_name)
    # the name is what save_pretrained writes down for AutoProcessor
    made = type(class_name, (_WithoutVideo, base), {})
    return made(image_processor=image_processor, tokenizer=tokenizer, chat_template=chat_template)


def load_processor(folder: str | Path, model_config: Any) -> Any:
    """Tokenizer and image processor of a vision-language model's folder, as one object.

    Raises:
        OptionError: a model that does not lay pictures out on a grid of patches.
    """
    images = AutoImageProcessor.from_pretrained(folder, backend="pil")
    if "image_grid_thw" not in images.model_input_names:
        raise OptionError(
            f"{folder}: {model_config.model_type} is not supported with pictures; valid: models whose "
            "pictures are a grid of patches (qwen2_vl, qwen2_5_vl)"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    name = PROCESSOR_MAPPING_NAMES[model_config.model_type]
    return processor_without_video(name, images, tokenizer, tokenizer.chat_template)


def never_sampled(model_config: Any) -> list[int]:
    """Ids that stand for pictures: sampled ones would ask the next forward pass for features."""
    found = (getattr(model_config, name, None) for name in _SPECIAL)
    return sorted({int(token) for token in found if token is not None})


class PictureEncoder:
    """Prompts as ids and pictures.

    Args:
        processor: as :func:`load_processor` makes it.
        image_id: the id that stands for a piece of a picture.
        template: keywords of the chat template.
    """

    def __init__(self, processor: Any, image_id: int, template: Mapping[str, Any]) -> None:
        self._processor, self.image_id, self._template = processor, image_id, dict(template)
        self._merge = int(processor.image_processor.merge_size) ** 2
        self._seen: dict[bytes, Picture] = {}
        self._sizes: dict[tuple[int, ...], int] = {}

    def encode(self, prompts: Sequence[Prompt]) -> list[Encoded]:
        """Ids with a place for each merged patch, and the pictures in their order.

        What these prompts share (the start of a group), or showed in the call before (a memory window), is
        processed once.
        """
        seen: dict[bytes, Picture] = {}
        encoded = []
        for prompt in prompts:
            keys = [_digest(image) for image in prompt.images]
            for key, image in zip(keys, prompt.images, strict=True):
                if key not in seen:
                    seen[key] = self._seen.get(key) or self._picture(image)
            encoded.append(self._encoded(prompt.chat(), [seen[key] for key in keys]))
        self._seen = seen
        return encoded

    def size_of(self, image: Any) -> int:
        """Tokens that an image adds to a prompt, marks around it included."""
        shape = (*image.shape[:2],) if hasattr(image, "shape") else (image.height, image.width)
        if shape not in self._sizes:
            text = [{"type": "text", "text": ""}]
            picture = [image_part(image)]
            without, with_image = (
                self._ids([{"role": "user", "content": content}])
                for content in (text, text + picture)
            )
            places = int(self._picture(image).grid.prod()) // self._merge
            self._sizes[shape] = len(with_image) - len(without) - 1 + places
        return self._sizes[shape]

    def _picture(self, image: Any) -> Picture:
        made = self._processor.image_processor(images=[as_pil(image)], return_tensors="pt")
        return Picture(made["pixel_values"], made["image_grid_thw"][0])

    def _ids(self, chat: list[dict[str, Any]]) -> list[int]:
        text = self._processor.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=False, **self._template
        )
        return list(self._processor.tokenizer.encode(text, add_special_tokens=False))

    def _encoded(self, chat: list[dict[str, Any]], pictures: list[Picture]) -> Encoded:
        ids, places = self._ids(chat), [int(p.grid.prod()) // self._merge for p in pictures]
        found = ids.count(self.image_id)
        if found != len(places):
            error = f"the prompt's text holds an image token ({found} for {len(places)} pictures)"
            return Encoded(ids, error=error)
        sizes, whole = iter(places), []
        for token in ids:
            whole += [token] * next(sizes) if token == self.image_id else [token]
        return Encoded(whole, tuple(pictures))


def _digest(image: Any) -> bytes:
    pixels = np.ascontiguousarray(image)
    return hashlib.sha256(repr((pixels.shape, pixels.dtype)).encode() + pixels.tobytes()).digest()


class PicturePolicy(ModelPolicy):
    """:class:`ModelPolicy` for prompts with pictures.

    Args:
        encoder: renders prompts.
        tokenizer: reads replies.
        generate: samples replies to ids and TRL's multimodal fields.
        options: of :class:`ModelPolicy`.
    """

    def __init__(
        self,
        encoder: PictureEncoder,
        tokenizer: Any,
        generate: Callable[..., tuple[list[list[int]], list[list[float]] | None]],
        **options: Any,
    ) -> None:
        super().__init__(tokenizer, generate, **options)
        self.encoder = encoder

    def encode(self, prompts: Sequence[Prompt]) -> list[Encoded]:
        return self.encoder.encode(prompts)

    def _sample(self, asked: Sequence[Encoded]) -> Any:
        ids = [prompt.ids for prompt in asked]
        pictures = [picture for prompt in asked for picture in prompt.pictures]
        if not pictures:
            return self._generate(ids)
        fields: dict[str, Any] = _joined(pictures)
        # per token, so a list: TRL pads it on the left as it does the ids
        fields["mm_token_type_ids"] = [
            [int(i == self.encoder.image_id) for i in row] for row in ids
        ]
        return self._generate(ids, fields)


def _joined(pictures: Sequence[Picture]) -> dict[str, Tensor]:
    return {
        "pixel_values": torch.cat([picture.patches for picture in pictures]),
        "image_grid_thw": torch.stack([picture.grid for picture in pictures]),
    }


def picture_tensors(
    pictures: Sequence[Sequence[Picture]], tokens: Mapping[str, Tensor], image_id: int
) -> dict[str, Any]:
    """The pictures of a batch under TRL's names; nothing where there are none.

    Args:
        pictures: of each sample; the batch's further rows are padding and have none.
        tokens: :func:`~trainers.trl_adapter.samples.token_tensors` of the samples.
        image_id: the id that stands for a piece of a picture.

    Returns:
        ``pixel_values`` (patches, D) float32, ``image_grid_thw`` (images, 3) int64, ``num_images`` (list,
        an int per row) and ``mm_token_type_ids`` (rows, P + T) int64, 1 at pieces of pictures.
    """
    flat = [picture for row in pictures for picture in row]
    if not flat:
        return {}
    prompts, rows = tokens["prompt_ids"], len(tokens["prompt_ids"])
    places = (prompts == image_id) & tokens["prompt_mask"].bool()
    kinds = torch.cat([places.long(), torch.zeros_like(tokens["completion_ids"])], 1)
    counts = [len(row) for row in pictures] + [0] * (rows - len(pictures))
    return {**_joined(flat), "num_images": counts, "mm_token_type_ids": kinds}


def pictures_of_rows(batch: Mapping[str, Any], rows: Tensor) -> dict[str, Any]:
    """``pixel_values``, ``image_grid_thw`` and ``num_images`` of some rows, in their order.

    Nothing where those rows show no picture: an image tower does not run on none.
    """
    counts = batch.get("num_images")
    if counts is None:
        return {}
    grids = torch.split(batch["image_grid_thw"], counts)
    patches = torch.split(batch["pixel_values"], [int(g.prod(-1).sum()) for g in grids])
    chosen = [int(row) for row in rows]
    if not any(counts[row] for row in chosen):
        return {}
    return {
        "pixel_values": torch.cat([patches[row] for row in chosen]),
        "image_grid_thw": torch.cat([grids[row] for row in chosen]),
        "num_images": [counts[row] for row in chosen],
    }


def fields_of(part: Mapping[str, Any]) -> dict[str, Any]:
    """The picture fields of a micro-batch, as TRL's scoring method takes them."""
    return {name: part[name] for name in FIELDS if part.get(name) is not None}
