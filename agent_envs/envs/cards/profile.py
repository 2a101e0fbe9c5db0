"""How the card games are shown to an agent."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

_ANSWER = (
    "Possible actions: [{admissible_actions}]\n\n"
    "Reason first, step by step, inside <think> </think>. "
    "Then give exactly one action inside <action> </action>."
)


def _profile(rules: str) -> Profile:
    return Profile(
        prompt=PromptSpec(
            first=rules + "\nYour task: {task}\n{observation}\n" + _ANSWER,
            later=(
                rules + "\nYour task: {task}\n"
                "You have taken {step_count} step(s) so far. The last {history_length} "
                "observation(s), each with the action you took on it:\n{omitted}{history}\n"
                "This is step {current_step}. Now:\n{observation}\n" + _ANSWER
            ),
        ),
        parser=Spec("tags"),
        memory=Spec("window", {"size": 2}),
        has_expert=True,
    )


NUMBER_LINE = _profile(
    "You stand on a number line. '+' takes you one number up, '-' one number down, "
    "never past the ends of the line."
)

_POINTS = (
    "You build a formula from playing cards, one entry at a time, and then press '='. "
    "The formula must use every card exactly once. {cards} "
    "An entry that is no unused number and no key is wasted and costs a point ('_' marks it). "
    "'=' ends the game."
)

EZ_POINTS = _profile(
    _POINTS.replace("{cards}", "An ace is 1; jack, queen and king are 10; keys are + * and =.")
)

POINTS24 = _profile(
    _POINTS.replace(
        "{cards}",
        "An ace is 1; jack, queen and king are worth what the list of unused numbers says; "
        "keys are + - * / ( ) and =. Fractions on the way are fine.",
    )
)

BLACKJACK = _profile(
    "You play blackjack against a dealer. Tens and faces count 10, an ace 1 or 11. 'hit' draws a "
    "card, and more than 21 loses at once; 'stand' ends your turn, and the dealer draws up to 17 "
    "or more. The higher total wins."
)
