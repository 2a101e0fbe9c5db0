r"""A tiny Qwen3-style language model with a word-level tokenizer, for trainings that fit on a laptop.

It is an ordinary Hugging Face folder: everything that loads a large model loads this one. The tokenizer
cuts text into words, each with the blank before it, so that concatenating the tokens restores the text::

    "<action>go to drawer 1</action>" -> <action> | go | " to" | " drawer" | " 1" | </action>

A tag is one token, a digit is one token. Unknown words become ``<unk>``.

Text that looks like a special token is never taken for one in a chat: the template puts a blank behind its
first character (``< |end|>``). Outside of the template, ``tokenizer.encode(text)`` does take it for one,
as with all Hugging Face tokenizers, because rendered chats pass there too; for plain text say
``tokenizer.encode(text, split_special_tokens=True)``.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from agent_envs.core.errors import OptionError, positive

__all__ = ["build_tiny", "count_parameters"]

PAD, UNK, END = "<pad>", "<unk>", "<|end|>"
ROLES = ("user", "assistant", "system")
SPECIAL = (PAD, UNK, *(f"<|{role}|>" for role in ROLES), END)
HEADS = 4  # unless said otherwise
TAGS = ("<think>", "</think>", "<action>", "</action>")

# Tags, digits, words, marks, each with one blank before it; then other white space, character by character.
# The texts "<pad>" and "<unk>" are no tags: as one piece they would be looked up as the special tokens.
PIECES = r" ?<(?!pad>|unk>)/?\w+>| ?\d| ?[^\W\d_]+| ?_| ?[^\w\s]|\s"

_DISARM = "".join(f".replace('{token}', '{token[0]} {token[1:]}')" for token in SPECIAL)
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    f"{{%- if message['role'] not in {list(ROLES)} -%}}"
    f"{{{{- raise_exception('unknown role; valid: {', '.join(ROLES)}') -}}}}"
    "{%- endif -%}"
    "{%- if message['content'] is string -%}"
    "{%- set text = message['content'] -%}"
    "{%- elif message['content'] | rejectattr('type', 'equalto', 'text') | list -%}"
    "{{- raise_exception('this model reads text only') -}}"
    "{%- else -%}"
    "{%- set text = message['content'] | map(attribute='text') | join -%}"
    "{%- endif -%}"
    f"{{{{- '<|' + message['role'] + '|>' + text{_DISARM} + '{END}' -}}}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def build_tiny(
    texts: Iterable[str],
    folder: str | Path,
    *,
    hidden_size: int = 128,
    layers: int = 3,
    heads: int = HEADS,
    context: int = 1024,
    seed: int = 0,
) -> Path:
    """Write an untrained model and a tokenizer of the words of ``texts`` into ``folder``; returns it.

    With the default sizes and 300-1,200 tokens the model has 0.48-0.6 M parameters, with hidden size 256
    and 6 layers about 4 M. The same arguments give the same bytes; PyTorch's global generator is left
    alone. ``context`` is the longest prompt plus answer, in tokens.

    OptionError for sizes that are not positive, an odd number of heads, or a hidden size that is not a
    multiple of twice the number of heads.
    """
    check_sizes(hidden_size, layers, heads, context)
    if isinstance(texts, str):
        raise OptionError("texts must be several texts, got one str; valid: [text]")
    folder = Path(folder)
    tokenizer = tokenizer_of(texts, context)
    config = _config(tokenizer, hidden_size, layers, heads, context)
    # only the CPU's generator: torch.manual_seed would also seed those of all GPUs
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def count_parameters(model: torch.nn.Module, trainable: bool = False) -> int:
    """How many numbers ``model`` consists of, tied ones once; only those with gradients if ``trainable``."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)


def check_sizes(hidden_size: int, layers: int, heads: int, context: int) -> None:
    """OptionError for sizes that make no model."""
    sizes = {"hidden_size": hidden_size, "layers": layers, "heads": heads, "context": context}
    for name, size in sizes.items():
        positive(name, size)
    if heads % 2:  # two heads share a key-value head
        raise OptionError(f"heads must be even, got {heads}; valid: {heads - 1 or 2}, {heads + 1}")
    if hidden_size % (2 * heads):  # rotary embeddings turn pairs of a head's numbers
        below = hidden_size // (2 * heads) * 2 * heads
        near = ", ".join(str(size) for size in (below, below + 2 * heads) if size)
        raise OptionError(
            f"hidden_size must be a multiple of 2 * heads = {2 * heads}, got {hidden_size}; "
            f"valid near it: {near}"
        )


def _config(
    tokenizer: PreTrainedTokenizerFast, hidden_size: int, layers: int, heads: int, context: int
) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,  # 2.5 would exceed 0.6 M with 800 tokens
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=hidden_size // heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        # the usual 0.02 suits widths of thousands; so narrow a model learned to copy three times slower
        initializer_range=hidden_size**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def tokenizer_of(texts: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """The word-level tokenizer of ``texts``; ``context`` is the longest text that a model takes."""
    split = Split(Regex(PIECES), behavior="isolated")
    vocabulary = {token: index for index, token in enumerate(_tokens(texts, split))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()  # without a decoder, tokens are joined with blanks
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        eos_token=END,
        extra_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=context,
        padding_side="left",  # generation goes on at the right end
    )


def _tokens(texts: Iterable[str], split: Split) -> Iterator[str]:
    """The vocabulary without repetitions, special tokens first: those known to all, then the texts' own.

    Each with and without a blank: a model that copies an action from the middle of a sentence to behind
    ``<action>`` needs its first word in the other form, and an action it has read has to be sayable. The
    order is by frequency, then by text, whatever the order of the texts (which may be a set).
    """
    counts = Counter(
        piece.lstrip(" ") for text in texts for piece, _ in split.pre_tokenize_str(text)
    )
    own = sorted(counts, key=lambda piece: (-counts[piece], piece))
    always = [*string.digits, *string.punctuation, *string.ascii_letters, *TAGS]
    blanks = [" ", "\n", *(piece for piece in own if piece.isspace())]
    words = [piece for piece in own if piece and not piece.isspace()]
    both = (form for piece in [*always, *words] for form in (piece, f" {piece}"))
    return iter(dict.fromkeys([*SPECIAL, *blanks, *both]))
