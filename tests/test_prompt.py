"""Prompts, memories and budgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.agent import (
    Completion,
    ConversationPrompt,
    Note,
    Prompt,
    Step,
    Template,
    TemplatePrompt,
    View,
    memory,
)
from agent_envs.core import OptionError, PromptOverflow, PromptSpec, TemplateError
from agent_envs.core.actions import Actions

SPEC = PromptSpec(
    first="Task {task}. Now: {observation}. Do: {admissible_actions}",
    later="Task {task}. {omitted}Past {history_length}/{step_count}: {history}\nNow {current_step}: {observation}",
    turn="[{step}: {observation} -> {action}]",
)


def view(step: int = 0, observation="here", actions=("a", "b"), replica: int = 0) -> View:
    return View(
        task="win", observation=observation, admissible_actions=Actions(actions), info={}, group=0,
        replica=replica, member=0, trajectory=0, step=step, group_seed=0, format_action=str,
    )  # fmt: skip


def past(count: int, observation="o", trajectory: int = 0) -> list[Step]:
    return [
        Step(
            prompt=Prompt(({"role": "user", "content": f"u{i}"},), view(i)),
            completion=Completion(f"c{i}"), action=f"act{i}", format_valid=True, action_valid=True,
            group=0, replica=0, trajectory=trajectory, step=i,
            observation=f"{observation}{i}" if isinstance(observation, str) else observation,
            anchor="", reward=0.0, terminated=False, truncated=False, error=None, info={},
            next_observation="",
        )
        for i in range(count)
    ]  # fmt: skip


# -- templates --------------------------------------------------------------------------------------


def test_other_braces_are_text():
    """F015: a JSON sample in the template is rendered unchanged."""
    template = Template(
        'Answer {"action": "..."} or {{"a": {}}} to {observation} {0} {', ["observation"]
    )
    assert (
        template.fill({"observation": "x"}) == 'Answer {"action": "..."} or {{"a": {}}} to x {0} {'
    )


def test_unknown_placeholders_are_found_at_load_time():
    with pytest.raises(TemplateError, match=r"\{obs\}.*known: observation"):
        Template("{obs}", ["observation"])
    assert Template("{{obs}}", ["observation"]).fill({}) == "{obs}"
    with pytest.raises(TemplateError):
        TemplatePrompt(PromptSpec(first="{nope}"))


@given(text=st.text())
def test_what_is_filled_in_is_never_looked_at_again(text: str):
    template = Template("<{a}|{b}>", ["a", "b"])
    assert template.fill({"a": text, "b": "{a}%s{0}"}) == f"<{text}|{{a}}%s{{0}}>"


# -- the template prompt ------------------------------------------------------------------------------


def test_first_and_later_prompts():
    builder = TemplatePrompt(SPEC)
    assert builder.build(view(), ()).text == "Task win. Now: here. Do: 'a', 'b'"
    assert builder.build(view(2), past(2)).text == (
        "Task win. Past 2/2: [1: o0 -> act0]\n[2: o1 -> act1]\nNow 3: here"
    )


def test_rendered_turns_are_not_mixed_up_between_replicas_and_episodes():
    """The memo of rendered turns is by identity: equal-looking steps of others are others."""
    builder = TemplatePrompt(SPEC)
    for letter in "xyz":
        for replica in range(3):
            text = builder.build(view(1, replica=replica), past(2, f"{letter}{replica}-")).text
            assert f"[1: {letter}{replica}-0 -> act0]" in text


def test_a_window_drops_gradually_and_keeps_step_numbers():
    """F020: whole turns go, oldest first; a note says how many; no half line is left."""
    history = past(10, "word " * 20)
    shown = []
    for limit in range(1300, 150, -50):
        builder = TemplatePrompt(SPEC, max_prompt_chars=limit)
        text = builder.build(view(10), history).text
        assert len(text) <= limit
        assert "Now 11: here" in text
        assert "Task win." in text
        turns = [n for n in range(1, 11) if f"[{n}: " in text]
        assert turns == list(range(11 - len(turns), 11))
        assert text.count(" -> act") == len(turns)
        if len(turns) < 10:
            left = 10 - len(turns)
            assert f"({left} earlier turn{'s' * (left > 1)} left out to fit.)" in text
        shown.append(len(turns))
    assert shown[0] == 10
    assert shown == sorted(shown, reverse=True)
    assert len(set(shown)) > 6


def test_the_observation_is_cut_visibly_and_the_task_never():
    builder = TemplatePrompt(SPEC, max_prompt_chars=120)
    text = builder.build(view(observation="x" * 1000), ()).text
    assert len(text) <= 120
    kept = text.count("x")
    assert f"[... {1000 - kept} characters left out ...]" in text
    assert kept > 10
    assert "Task win." in text
    with pytest.raises(PromptOverflow, match="budget of 20"):
        TemplatePrompt(SPEC, max_prompt_chars=20).build(view(), ())


@given(
    limit=st.integers(60, 700),
    lengths=st.lists(st.integers(0, 200), max_size=6),
    size=st.integers(0, 300),
)
def test_a_budget_is_kept_or_refused(limit: int, lengths: list[int], size: int):
    history = past(len(lengths))
    for step, length in zip(history, lengths, strict=True):
        step.observation = "w" * length
    builder = TemplatePrompt(SPEC, max_prompt_chars=limit)
    try:
        prompt = builder.build(view(len(lengths), "y" * size), history)
    except PromptOverflow:
        return
    assert len(prompt.text) <= limit
    assert "Task win" in prompt.text


def test_tokens_are_counted_by_the_tokenizer():
    class Words:
        def encode(self, text: str) -> list[str]:
            return text.split()

    builder = TemplatePrompt(SPEC, max_prompt_tokens=24, tokenizer=Words())
    text = builder.build(view(5), past(5)).text
    assert len(text.split()) <= 24
    assert "left out" in text
    with pytest.raises(OptionError, match="tokenizer"):
        TemplatePrompt(SPEC, max_prompt_tokens=10)
    with pytest.raises(OptionError, match="positive"):
        TemplatePrompt(SPEC, max_prompt_chars=0)


# -- pictures ---------------------------------------------------------------------------------------------


def picture(value: int) -> np.ndarray:
    return np.full((4, 4, 3), value, np.uint8)


def test_images_live_in_the_parts():
    builder = TemplatePrompt(SPEC)
    prompt = builder.build(view(observation={"image": picture(1), "text": "see <image>"}), ())
    (message,) = prompt.messages
    assert [part["type"] for part in message["content"]] == ["text", "image", "text"]
    assert len(prompt.images) == 1
    assert "see <image>" in prompt.text


def test_images_of_dropped_turns_go_with_their_turns():
    """F018: six pictures, a budget for three; the newest stays, a literal <image> is not counted."""
    history = past(5)
    for i, step in enumerate(history):
        step.observation = {"image": picture(i), "text": "<image>"}
    builder = TemplatePrompt(SPEC, max_prompt_chars=3500, image_size=1000)
    prompt = builder.build(view(5, {"image": picture(9), "text": "now"}), history)
    assert [int(image[0, 0, 0]) for image in prompt.images] == [3, 4, 9]
    parts = prompt.messages[0]["content"]
    assert sum(part["type"] == "image" for part in parts) == 3
    assert "(3 earlier turns left out to fit.)" in prompt.text


# -- one growing conversation ------------------------------------------------------------------------------


def conversation(builder, steps: int) -> Prompt:
    """Builds prompt after prompt, as an episode would."""
    history: list[Step] = []
    for i in range(steps):
        prompt = builder.build(view(i, f"o{i}"), history)
        (step,) = past(1)
        step.prompt, step.step, step.completion = prompt, i, Completion(f"c{i}")
        history.append(step)
    return builder.build(view(steps, f"o{steps}"), history)


def test_conversations_grow_by_turns():
    prompt = conversation(ConversationPrompt(SPEC), 3)
    assert [m["role"] for m in prompt.messages] == ["user", "assistant"] * 3 + ["user"]
    assert prompt.messages[0]["content"].startswith("Task win. Now: o0.")
    assert prompt.messages[1]["content"] == "c0"
    assert prompt.messages[-1]["content"] == "Observation: o3\nAdmissible actions: ['a', 'b']"


def test_conversations_drop_whole_turns():
    builder = ConversationPrompt(SPEC, max_prompt_chars=250)
    prompt = conversation(builder, 9)
    assert sum(len(m["content"]) for m in prompt.messages) <= 250
    assert [m["role"] for m in prompt.messages[:2]] == ["user", "assistant"]
    assert prompt.messages[0]["content"].startswith("Task win.")
    assert "left out to fit" in prompt.messages[-1]["content"]
    assert sum("left out" in m["content"] for m in prompt.messages) == 1
    with pytest.raises(PromptOverflow):
        ConversationPrompt(SPEC, max_prompt_chars=10).build(view(), ())


def test_long_conversations_take_bounded_time():
    import time

    builder = ConversationPrompt(SPEC, max_prompt_chars=2000)
    start = time.process_time()
    conversation(builder, 300)
    assert time.process_time() - start < 10  # cubic: minutes


def test_conversations_with_a_window_keep_the_opening():
    builder = ConversationPrompt(SPEC)
    history: list[Step] = []
    for i in range(6):
        prompt = builder.build(view(i, f"o{i}"), history[-2:])
        (step,) = past(1)
        step.prompt, step.step, step.completion = prompt, i, Completion(f"c{i}")
        history.append(step)
    assert [m["role"] for m in prompt.messages] == ["user", "assistant"] * 2 + ["user"]
    first = prompt.messages[0]["content"]
    assert first.startswith("Task win. Now: o0.")
    assert "(3 earlier turns left out to fit.)" in first
    assert "Observation: o3" in first


def test_images_are_counted_and_measured():
    history = past(5)
    for i, step in enumerate(history):
        step.observation = {"image": picture(i), "text": "t"}
    now = view(5, {"image": picture(9), "text": "now"})
    for options in ({"max_images": 3}, {"max_pixels": 3 * 16}):
        prompt = TemplatePrompt(SPEC, **options).build(now, history)
        assert [int(i[0, 0, 0]) for i in prompt.images] == [3, 4, 9]
        assert len(prompt.pil_images()) == 3
        parts = [p for m in prompt.chat() for p in m["content"]]
        assert sum(p["type"] == "image" for p in parts) == 3
    prompt = TemplatePrompt(SPEC, history_images=False).build(now, history)
    assert len(prompt.images) == 1
    assert "[1: t -> act0]" in prompt.text
    for wrong in (0, "2", True):
        with pytest.raises(OptionError, match="max_images must be a positive integer"):
            TemplatePrompt(SPEC, max_images=wrong)
    for builder in (TemplatePrompt, ConversationPrompt):
        with pytest.raises(TypeError, match="max_imges"):
            builder(SPEC, max_imges=1)


def test_conversations_may_leave_past_images_out():
    for keep, images in ((True, 4), (False, 2)):  # the first message keeps its own
        builder = ConversationPrompt(SPEC, history_images=keep)
        history: list[Step] = []
        for i in range(4):
            prompt = builder.build(view(i, {"image": picture(i), "text": f"t{i}"}), history)
            (step,) = past(1)
            step.prompt, step.step = prompt, i
            history.append(step)
        assert len(prompt.images) == images
        assert "t2" in prompt.text


# -- memories ------------------------------------------------------------------------------------------------


def test_windows():
    history = past(6)
    assert list(memory.none()(history)) == []
    assert list(memory.full()(history)) == history
    assert list(memory.window(2)(history)) == history[-2:]
    assert list(memory.window(0)(history)) == []
    assert list(memory.window(9)(history)) == history
    with pytest.raises(OptionError):
        memory.window(-1)


def test_token_budget_takes_whole_latest_steps():
    history = past(6)  # each costs 2 + 4 characters
    assert list(memory.token_budget(13)(history)) == history[-2:]
    assert list(memory.token_budget(5)(history)) == []
    assert list(memory.token_budget(1000)(history)) == history
    assert list(memory.token_budget(3, lambda text: 1)(history)) == history[-3:]


def test_key_events_summary_and_knowledge():
    history = past(6)
    events = memory.key_events(lambda step: step.step == 1, recent=1)
    assert events(history) == [history[1], history[5]]
    calls = []

    def summarise(steps):
        calls.append(len(steps))
        return f"{len(steps)} steps"

    short = memory.summary(summarise, recent=2)
    assert short(history) == [Note("4 steps"), *history[4:]]
    assert short(history) == [Note("4 steps"), *history[4:]]
    assert calls == [4]
    assert list(short(history[:2])) == history[:2]
    facts = memory.knowledge(lambda steps: ["water is wet"], memory.window(1))
    assert facts(history) == [Note("water is wet"), history[-1]]
    text = TemplatePrompt(SPEC).build(view(6), facts(history)).text
    assert "water is wet\n[6: o5 -> act5]" in text


def test_summaries_of_other_trajectories_are_others():
    short = memory.summary(lambda steps: steps[0].observation, recent=0)
    assert short(past(3, "a", trajectory=1)) == [Note("a0")]
    assert short(past(3, "b", trajectory=2)) == [Note("b0")]


def test_memories_hold_nothing_of_their_own():
    """F022: two memories made with defaults, and two replicas of one, never share."""
    first, second = memory.window(3), memory.window(3)
    mine, other = past(2, "mine"), past(2, "other")
    assert list(first(mine)) == mine
    assert list(second(())) == []
    assert list(first(other)) == other
