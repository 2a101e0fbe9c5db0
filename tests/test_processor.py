"""Prompts with pictures through a real Hugging Face processor, built from a configuration."""

from __future__ import annotations

import pytest

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, TemplatePrompt

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    """A Qwen2.5-VL processor over a byte-level vocabulary made here; nothing is downloaded."""
    transformers = pytest.importorskip("transformers", reason="needs transformers (extra train)")
    pytest.importorskip("torch", reason="needs torch")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
               "<|video_pad|>", "<|endoftext|>"]  # fmt: skip
    vocabulary = {token: i for i, token in enumerate(alphabet + special)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=special[:-1],
    )
    fast.image_token, fast.video_token = "<|image_pad|>", "<|video_pad|>"
    fast.image_token_id = vocabulary["<|image_pad|>"]
    fast.video_token_id = vocabulary["<|video_pad|>"]
    try:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil as ImageProcessor,
        )
    except ImportError:
        from transformers import Qwen2VLImageProcessor as ImageProcessor
    return transformers, fast, ImageProcessor


def test_placeholders_equal_images(processor):
    """F018, through the processor: one block of image tokens per picture, a literal <image> none."""
    transformers, tokenizer, image_processor = processor

    class Processor(transformers.Qwen2_5_VLProcessor):
        """Without the video part, whose class needs torchvision."""

        def check_argument_for_proper_class(self, name, argument):
            return None

    made = Processor(image_processor=image_processor(), tokenizer=tokenizer, chat_template=TEMPLATE)
    group = agent_envs.make_group("AgentEnv/Sokoban-v0", 1, 1, obs_mode="both", tile_size=28)
    agent = AgentGroup(group, prompt=TemplatePrompt(group.profile.prompt, max_images=3))
    rollout = agent.rollout(ExpertPolicy(), seed=1)
    for step in rollout.steps:
        chat = step.prompt.chat()
        chat[0]["content"].append({"type": "text", "text": "a literal <image> is text"})
        text = made.apply_chat_template(chat, tokenize=False)
        images = step.prompt.pil_images()
        assert text.count("<|image_pad|>") == len(images) == min(3, step.step + 1)
        batch = made(text=[text], images=images, return_tensors="pt")
        pads = int((batch["input_ids"] == tokenizer.image_token_id).sum())
        merge = made.image_processor.merge_size**2
        assert pads == sum(int(grid.prod()) // merge for grid in batch["image_grid_thw"])
    agent.close()
