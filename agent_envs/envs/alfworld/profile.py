"""How ALFWorld is shown to an agent: the seed system's prompt shape in our own words."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

_ANSWER = (
    "Choose the next action. Reason first, step by step, inside <think> </think>. "
    "Then give exactly one of the admissible actions inside <action> </action>."
)

PROFILE = Profile(
    prompt=PromptSpec(
        first=(
            "You control a household robot in a text world.\n"
            "Your task is to: {task}\n"
            "Current observation: {observation}\n"
            "Admissible actions: [{admissible_actions}]\n\n" + _ANSWER
        ),
        later=(
            "You control a household robot in a text world.\n"
            "Your task is to: {task}\n"
            "You have taken {step_count} step(s) so far. The last {history_length} observation(s), "
            "each with the action you took on it:\n{omitted}{history}\n"
            "This is step {current_step}. Current observation: {observation}\n"
            "Admissible actions: [{admissible_actions}]\n\n" + _ANSWER
        ),
    ),
    parser=Spec("tags"),
    memory=Spec("window", {"size": 5}),
    hidden_actions=("help",),
    has_expert=True,
)
