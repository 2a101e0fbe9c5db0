"""The tiny model: exact texts through its tokenizer, an ordinary folder, the same bytes for the same seed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from agent_envs.core.errors import OptionError
from trainers.trl_adapter.tiny import SPECIAL, build_tiny, count_parameters

PROMPT = (
    "You are in the middle of a room. Looking quickly around you, you see a drawer 12, and a desk 1.\n"
    "Your task is to: put some creditcard in dresser.\n\n"
    "Admissible actions:\n  'go to drawer 1'\n  'open drawer 1'\n"
    "Think inside <think> </think>, then answer with one action inside <action> </action>. "
)
BOARD = "######\n#_@$.#\n#  * #\n######\n-3.5 (you lost) [x=1, y_0=2]"
WORDS = " ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(300))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_tiny([PROMPT, BOARD], tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def pieces(tokenizer, text, **kwargs):
    return tokenizer.convert_ids_to_tokens(tokenizer.encode(text, **kwargs))


def chat_ids(tokenizer, messages):
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )


@pytest.mark.parametrize("texts", [[PROMPT], [PROMPT, BOARD, WORDS]], ids=["few words", "300 more"])
def test_default_size_has_about_half_a_million_parameters(tmp_path, texts):
    model = transformers.AutoModelForCausalLM.from_pretrained(build_tiny(texts, tmp_path))
    assert 300_000 <= count_parameters(model) <= 600_000
    assert count_parameters(model, trainable=True) == count_parameters(model)
    model.lm_head.requires_grad_(False)
    tied = model.config.vocab_size * model.config.hidden_size
    assert count_parameters(model, trainable=True) == count_parameters(model) - tied
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_options_reach_millions(tmp_path):
    build_tiny([PROMPT], tmp_path, hidden_size=256, layers=6, heads=8, context=2048)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert 1_000_000 <= count_parameters(model) <= 5_000_000
    assert model.config.max_position_embeddings == 2048


@pytest.mark.parametrize(
    "text",
    [
        PROMPT,
        BOARD,
        "<action>go to drawer 1</action>",
        "<think>drawer 12 </think>\n<action>put creditcard in</action>",
        "  You\n\n a  <action> go</action> ",
        "",
    ],
)
def test_text_of_known_words_comes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.batch_decode([ids], skip_special_tokens=True) == [text]


def test_tags_and_digits_are_single_tokens_and_blanks_go_with_words(tokenizer):
    assert pieces(tokenizer, "<action>go to drawer 12</action>") == (
        ["<action>", "go", " to", " drawer", " 1", "2", "</action>"]
    )
    assert pieces(tokenizer, "creditcard") == ["creditcard"]  # seen only behind a blank


def test_unknown_words_become_unk(tokenizer):
    assert pieces(tokenizer, "go zyzzyva") == ["go", "<unk>"]


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_any_text_encodes_and_decodes(tokenizer, text):
    ids = tokenizer.encode(text)
    for skip in (False, True):
        decoded = tokenizer.decode(ids, skip_special_tokens=skip)
        assert decoded == text or tokenizer.unk_token_id in ids


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(st.sampled_from([*SPECIAL, "<", "|", "end", ">", "<|", "|>", "go", " ", "\n"]))
)
def test_special_tokens_in_a_text_are_disarmed(tokenizer, parts):
    text = "".join(parts)
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    assert not special & {*tokenizer.encode(text, split_special_tokens=True)}
    user, assistant, end = tokenizer.convert_tokens_to_ids(["<|user|>", "<|assistant|>", "<|end|>"])
    ids = chat_ids(tokenizer, [{"role": "user", "content": text}])
    assert [i for i in ids if i in special] == [user, end, assistant]


def test_pad_and_unk_as_text_are_not_looked_up_as_special(tokenizer):
    found = pieces(tokenizer, "<pad> <unk> <|end|>", split_special_tokens=True)
    assert "<pad>" not in found
    assert "<|end|>" not in found
    assert [*found[:1], *found[2:3]] == ["<", ">"]


def test_chat_template_of_texts_and_parts(tokenizer):
    parts = [{"type": "text", "text": "go to\n"}, {"type": "text", "text": " drawer 1"}]
    chat = [
        {"role": "system", "content": "You are in a room."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "<action>open drawer 1</action>"},
    ]
    ids = chat_ids(tokenizer, chat)
    assert all(type(i) is int for i in ids)
    assert tokenizer.decode(ids) == (
        "<|system|>You are in a room.<|end|><|user|>go to\n drawer 1<|end|>"
        "<|assistant|><action>open drawer 1</action><|end|><|assistant|>"
    )
    short = tokenizer.apply_chat_template(chat[:2], tokenize=False)
    assert short.endswith(" drawer 1<|end|>")
    assert tokenizer.decode(ids).startswith(short)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"role": "tool", "content": "x"}, "user, assistant, system"),
        ({"role": "user", "content": [{"type": "image"}]}, "text only"),
    ],
)
def test_chat_template_refuses_what_the_model_cannot_read(tokenizer, message, says):
    with pytest.raises(Exception, match=says):
        tokenizer.apply_chat_template([message], tokenize=False)


def test_ends_and_padding_are_told_apart(tokenizer, model):
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<pad>", "<|end|>")
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.model_max_length == 1024
    assert len(tokenizer) == model.config.vocab_size


def test_generation_runs_on_a_padded_batch_and_stops_at_eos(tokenizer, model):
    batch = tokenizer(["go to drawer 1", "go"], padding=True, return_tensors="pt")
    assert batch["attention_mask"].tolist()[1] == [0, 0, 0, 1]
    size = batch["input_ids"].shape[1]
    end = tokenizer.eos_token_id
    free = model.generate(
        **batch, max_new_tokens=6, do_sample=False, sequence_bias=[[[end], -100.0]]
    )
    assert free.shape == (2, size + 6)
    ended = model.generate(
        **batch, max_new_tokens=6, do_sample=False, sequence_bias=[[[end], 100.0]]
    )
    assert ended[:, size:].tolist() == [[end], [end]]


def test_padding_does_not_change_the_answer(tokenizer, model):
    long, short = "go to drawer 1", "go"
    with torch.no_grad():
        alone = model(**tokenizer(short, return_tensors="pt")).logits[0, -1]
        batch = tokenizer([long, short], padding=True, return_tensors="pt")
        positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        padded = model(**batch, position_ids=positions).logits[1, -1]
    assert torch.allclose(alone, padded, atol=1e-5)


def test_a_critic_loads_from_the_same_folder(folder, tokenizer):
    critic = transformers.AutoModelForTokenClassification.from_pretrained(folder, num_labels=1)
    assert critic(**tokenizer("go to", return_tensors="pt")).logits.shape == (1, 2, 1)


def test_same_seed_same_bytes_other_seed_others(tmp_path):
    def made(name: str, seed: int, texts=(PROMPT, BOARD)) -> tuple[bytes, bytes]:
        folder = build_tiny(texts, tmp_path / name, seed=seed)
        return (folder / "model.safetensors").read_bytes(), (folder / "tokenizer.json").read_bytes()

    first = made("a", 3)
    assert made("b", 3) == first
    assert made("c", 3, texts=iter((BOARD, PROMPT))) == first  # the texts' order does not matter
    weights, words = made("d", 4)
    assert weights != first[0]
    assert words == first[1]


def test_global_generator_and_default_dtype_do_not_matter_and_stay(tmp_path):
    plain = build_tiny([PROMPT], tmp_path / "a")
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        other = build_tiny([PROMPT], tmp_path / "b")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
    name = "model.safetensors"
    assert (plain / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hidden_size": 0}, "hidden_size must be a positive integer"),
        ({"layers": -1}, "layers must be a positive integer"),
        ({"heads": 2.5}, "heads must be a positive integer"),
        ({"context": 0}, "context must be a positive integer"),
        ({"heads": 3}, "valid: 2, 4"),
        ({"heads": 1}, "valid: 2"),
        ({"hidden_size": 130}, "valid near it: 128, 136"),
        ({"hidden_size": 4}, "valid near it: 8"),
    ],
)
def test_wrong_sizes_name_the_right_ones(tmp_path, options, says):
    with pytest.raises(OptionError, match=says):
        build_tiny([PROMPT], tmp_path / "never", **options)
    assert not (tmp_path / "never").exists()


def test_one_text_is_not_several(tmp_path):
    with pytest.raises(OptionError, match=r"valid: \[text\]"):
        build_tiny(PROMPT, tmp_path)
