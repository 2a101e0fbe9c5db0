"""How an environment likes to be shown to an agent: plain data that the agent layer interprets.

An environment class carries a :class:`Profile`; it knows nothing of prompt builders or parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """Templates of one decision's prompt.

    Placeholders: ``{task}``, ``{observation}``, ``{admissible_actions}``, ``{history}``,
    ``{history_length}`` (turns shown), ``{step_count}`` (actions taken so far), ``{current_step}``
    (``step_count + 1``), ``{omitted}`` (the note on left-out turns, or nothing). In ``turn``:
    ``{observation}``, ``{action}``, ``{step}``. Any other braces are ordinary text.

    Args:
        first: used while there is no history to show.
        later: used otherwise; empty means ``first``.
        turn: one past step of the history.
        system: optional system message.
    """

    first: str
    later: str = ""
    turn: str = "[Observation {step}: '{observation}', Action {step}: '{action}']"
    system: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A named part with options, looked up in the agent layer's tables (``tags``, ``window``...)."""

    name: str
    options: Mapping[str, Any] = field(default_factory=lambda: NO_OPTIONS)

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy does not pickle
        return type(self), (self.name, dict(self.options))


@dataclass(frozen=True, slots=True)
class Profile:
    """Defaults for prompt, parser and memory, and what the environment can do.

    Args:
        invalid_action: what reaches the environment when a completion holds no valid action;
            a counted turn that changes nothing. ``{reason}`` in it says what was wrong.
        hidden_actions: admissible actions that prompts and random policies leave out.
        portable_state: ``get_state`` works.
        has_expert: ``expert_action`` returns actions.
        one_thread: all calls must come from the thread that made the environment (it holds an SQLite
            connection, a browser...). Otherwise the env server calls it from changing threads, one at a time.
    """

    prompt: PromptSpec
    parser: Spec = Spec("tags")
    memory: Spec = Spec("window", MappingProxyType({"size": 5}))
    invalid_action: str = ""
    hidden_actions: tuple[str, ...] = ()
    portable_state: bool = True
    has_expert: bool = False
    one_thread: bool = False


DEFAULT_PROFILE = Profile(
    PromptSpec(
        first=(
            "Your task: {task}\nCurrent observation: {observation}\n"
            "Possible actions: {admissible_actions}\n"
            "Think inside <think> </think>, then answer with one action inside <action> </action>."
        ),
        later=(
            "Your task: {task}\nYou have taken {step_count} step(s). The last {history_length}:\n"
            "{omitted}{history}\n"
            "You are now at step {current_step}. Current observation: {observation}\n"
            "Possible actions: {admissible_actions}\n"
            "Think inside <think> </think>, then answer with one action inside <action> </action>."
        ),
    )
)
