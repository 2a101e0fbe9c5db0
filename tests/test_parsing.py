"""Parsers: public faults by id, the documented rules, and hostile text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_envs.agent import CodeParser, JsonParser, TagParser, parser_for
from agent_envs.core import OptionError

TAG_CASES = [
    # F001: line breaks inside tags
    ("<think>\nl1\nl2\n</think>\n<action>\ngo to desk 1\n</action>", "go to desk 1"),
    # F003: the template wrote the opening tag
    ("I go left.</think>\n<action>left</action>", "left"),
    # F004: an action drafted in the reasoning is not executed
    (
        "<think>maybe <action>take apple 1</action>? no.</think><action>go to fridge 1</action>",
        "go to fridge 1",
    ),
    # F006: an action only in the reasoning
    ("<think>I will <action>look</action></think>", None),
    ("<think>I will <action>look</action>", None),
    # F008: several
    ("<think>a</think><action>left</action><think>b</think><action>right</action>", "left"),
    # F012: invented replies
    ("<action>go to desk 1</action>\nObservation: You won!", "go to desk 1"),
    # F013: case and blanks
    ("<ACTION> Push UP </ACTION>", "push up"),
    ("<action>LEFT\n</action>", "left"),
    # F014: other scripts, full-width brackets
    ("<think>先看桌子</think><action>go to desk 1</action>", "go to desk 1"),
    ("<think>机を見る</think><action>go to desk 1</action>", "go to desk 1"),
    ("＜action＞left＜/action＞", "left"),
    ("＜action＞left＜／action＞", "left"),
    # mentioned and nested tags: the innermost pair
    ("Put it in <action> tags: <action>left</action>", "left"),
    ("<action><action>left</action></action>", "left"),
    ("a </action> b <action>left</action>", "left"),
    ("<think><think>a</think> b <action>x</action></think><action>y</action>", "y"),
    # none, empty, unclosed
    ("go left", None),
    ("<action></action>", None),
    ("<action>   </action>", None),
    ("<action>left", None),
    ("", None),
    ("<action>a\ud800</action>", None),
]


@pytest.mark.parametrize(("text", "action"), TAG_CASES)
def test_tags(text: str, action: str | None):
    parsed = TagParser().parse(text)
    assert parsed.action == action
    assert parsed.valid == (action is not None)
    assert bool(parsed.reason) == (action is None)
    assert TagParser().parse(text) == parsed


def test_prefilled_reasoning():
    """F003 with the prefill known."""
    parser = TagParser(require_think=True)
    assert parser.parse("I go left.</think>\n<action>left</action>", prefilled="<think>\n").valid
    assert not parser.parse("<action>left</action>").valid
    # an action that the prefilled reasoning never closed is still reasoning
    assert not parser.parse("<action>left</action>", prefilled="<think>\n").valid


def test_policies_for_several_actions():
    text = "<action>left</action><action>right</action>"
    assert TagParser(on_multiple="first").parse(text).action == "left"
    assert TagParser(on_multiple="last").parse(text).action == "right"
    parsed = TagParser(on_multiple="invalid").parse(text)
    assert (parsed.action, parsed.valid) == (None, False)
    assert "2 actions" in parsed.reason


def test_options():
    assert TagParser(fold_case=False).parse("<action>Search[A B]</action>").action == "Search[A B]"
    assert TagParser(unclosed="action").parse("<action>left").action == "left"
    assert TagParser(tag="code").parse("<code>x</code>").action == "x"
    assert TagParser(untagged="action").parse(" Left ").action == "left"
    assert not TagParser(untagged="action").parse("<action>left").valid
    for wrong in ({"on_multiple": "all"}, {"untagged": "x"}, {"refuse_scripts": ["latin"]}):
        with pytest.raises(OptionError, match="valid"):
            TagParser(**wrong)


@pytest.mark.parametrize(
    ("script", "thought"), [("han", "先看桌子"), ("kana", "つくえ"), ("hangul", "책상")]
)
def test_refused_scripts_agree_with_the_executed_action(script: str, thought: str):
    """F014: the flag and what is executed never disagree."""
    text = f"<think>{thought}</think><action>look</action>"
    assert TagParser().parse(text).action == "look"
    parsed = TagParser(refuse_scripts=[script]).parse(text)
    assert (parsed.action, parsed.valid) == (None, False)
    assert script in parsed.reason
    assert TagParser(refuse_scripts=[script]).parse("<action>look</action>").valid


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"action": "Left"}', "left"),
        ('Sure!\n```json\n{"thought": "{x}", "action": "left"}\n```', "left"),
        ('{"thought": "none"} {"action": "left"}', "left"),
        ('<think>{"action": "up"}</think>{"action": "down"}', "down"),
        ('{"action": 10}', "10"),
        ('{"action": true}', None),
        ('{"action": ["left"]}', None),
        ('{"action": "left"', None),
        ('{{{"action": "left"}}}', "left"),
        ('{"action": "\\ud800"}', None),
        ("no json", None),
    ],
)
def test_json(text: str, action: str | None):
    parsed = JsonParser().parse(text)
    assert parsed.action == action, parsed
    assert parsed.valid == (action is not None)


FENCED = "print('''\n```\nno end\n```\n''')\nprint(2)"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        # F075 a to e
        ("Here:\n```python\nx = 1\nprint(x)", "x = 1\nprint(x)"),
        (f"```python\n{FENCED}\n```\nDone.", FENCED),
        ("```python\na = 1\n```\ntext\n```python\nb = 2\n```", "a = 1"),
        ("~~~python\nx = 1\n~~~", "x = 1"),
        ("x = 1", None),
        ("<code>\nfor i in x:\n    Print(i)\n</code>", "for i in x:\n    Print(i)"),
        ("<code>\n```python\nx = 1\n```\n</code>", "x = 1"),
        ("<think>```\ny\n```</think>\n```\nx\n```", "x"),
        ("````\n```\nx\n```\n````", "```\nx\n```"),
        ("<code></code>", None),
    ],
)
def test_code(text: str, action: str | None):
    parsed = CodeParser().parse(text)
    assert parsed.action == action, parsed
    assert parsed.valid == (action is not None)


@pytest.mark.parametrize(
    "parser", [TagParser(), JsonParser(), CodeParser()], ids=lambda p: type(p).__name__
)
@settings(max_examples=300, deadline=None)
@given(
    text=st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "<action>",
                "</action>",
                "<think>",
                "</think>",
                "{",
                "}",
                '"action":',
                "```",
                "\n",
                "a",
                "<code>",
            ]
        ),
        max_size=30,
    ).map("".join)
)
def test_no_text_raises_and_flags_agree(parser, text: str):
    parsed = parser.parse(text)
    assert parsed.valid == (parsed.action is not None)
    assert parsed.valid != bool(parsed.reason)


@pytest.mark.parametrize(
    "parser", [TagParser(), JsonParser(), CodeParser()], ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize(
    "text",
    ["<" * 100_000, "<think>" * 20_000, "<action>" * 20_000, "{" * 100_000, '{"a":' * 20_000,
     "```\n" * 20_000, "[" * 100_000, "<code>" + "(" * 50_000, " " * 1_000_000,
     "<" + " " * 100_000, "<think>a</think><action>x<" + "\n" * 100_000 + "</action>",
     "```" + " " * 100_000 + "!", "`" * 100_000 + "\n", "</" + "\t" * 100_000],
    ids=range(14),
)  # fmt: skip
def test_hostile_sizes_take_bounded_time(parser, text: str):
    start = time.process_time()
    parser.parse(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "parser", [TagParser(), JsonParser(), CodeParser()], ids=lambda p: type(p).__name__
)
@given(action=st.text("abc {}\"'\\0123", min_size=1).map(str.strip).filter(bool))
def test_format_is_read_back(parser, action: str):
    assert parser.parse(parser.format(action)).action == action


def test_parser_for_an_id():
    assert parser_for("AgentEnv/ALFWorld-v0").parse("<action>Look</action>").action == "look"
    with pytest.raises(KeyError, match="known"):
        parser_for("AgentEnv/NoSuch-v0")
