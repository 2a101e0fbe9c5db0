"""How Sokoban is shown to an agent."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

_RULES = (
    "You play Sokoban: push every box onto a target. You walk up, down, left or right; walking into "
    "a box pushes it one cell if the cell behind it is free. You cannot pull, and you cannot push "
    "two boxes at once.\n"
)
_ANSWER = (
    "Think about where each box must go and from which side to push it, inside <think> </think>. "
    "Then give one of {admissible_actions} inside <action> </action>."
)

PROFILE = Profile(
    prompt=PromptSpec(
        first=_RULES + "{task}\nThe room now:\n{observation}\n\n" + _ANSWER,
        later=(
            _RULES + "{task}\nYou have taken {step_count} step(s). The last {history_length}:\n"
            "{omitted}{history}\nThe room now (step {current_step}):\n{observation}\n\n" + _ANSWER
        ),
        turn="Step {step}:\n{observation}\nyour action: {action}",
    ),
    parser=Spec("tags"),
    memory=Spec("window", {"size": 2}),
    invalid_action="",
    has_expert=True,
)
