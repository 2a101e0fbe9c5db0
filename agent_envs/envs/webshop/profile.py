"""How the shop is shown to an agent: the seed system's prompt shape in our own words."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

_ROLE = "You are shopping in an online shop, on behalf of somebody who asked for this:\n{task}\n"
_ANSWER = (
    "Admissible actions: [{admissible_actions}]\n"
    "(to search, put your own words into the brackets)\n\n"
    "Choose the next action. Reason first, step by step, inside <think> </think>. "
    "Then give exactly one action inside <action> </action>."
)

PROFILE = Profile(
    prompt=PromptSpec(
        first=_ROLE + "Current page: {observation}\n" + _ANSWER,
        later=(
            _ROLE
            + "You have taken {step_count} step(s) so far. The last {history_length} page(s), "
            "each with the action you took on it:\n{omitted}{history}\n"
            "This is step {current_step}. Current page: {observation}\n" + _ANSWER
        ),
    ),
    parser=Spec("tags"),
    memory=Spec("window", {"size": 5}),
    has_expert=True,
)
