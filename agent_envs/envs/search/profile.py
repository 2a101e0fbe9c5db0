"""How Search is shown to an agent."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

_HOW = (
    "Answer the question. You can look things up in a collection of passages: what you write between "
    "<search> and </search> is searched for, and the best passages come back between <information> and "
    "</information>. Search again with other words if they do not help. Once you know the answer, give it, "
    "as short as possible and without explanation, between <answer> and </answer>; for example "
    "<answer> Lisbon </answer>.\n"
)
_ANSWER = (
    "Think inside <think> </think> first. Then give exactly one <search> ... </search> or one "
    "<answer> ... </answer>."
)

PROFILE = Profile(
    prompt=PromptSpec(
        first=_HOW + "Question: {task}\n" + _ANSWER,
        later=(
            _HOW + "Question: {task}\nYour steps so far ({step_count}; shown: {history_length}):\n"
            "{omitted}{history}\n{observation}\n" + _ANSWER
        ),
        turn="{observation}\nStep {step}: {action}",
    ),
    parser=Spec("blocks", {"tags": ("search", "answer")}),
    memory=Spec("window", {"size": 4}),
    has_expert=True,
)
