"""The records of the agent's side: what is asked, what is answered, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.core.actions import Actions
from agent_envs.core.env import Obs
from agent_envs.core.record import record
from agent_envs.core.visual import pillow

Message = Mapping[str, Any]
"""``{"role": ..., "content": str or parts}``; a part is ``{"type": "text", "text": str}`` or
``{"type": "image", "image": uint8 array H x W x 3 or a PIL image}``."""


@record
class View:
    """What a policy may look at besides the rendered prompt.

    ``admissible_actions`` leaves out what the profile hides; None where they cannot be enumerated.
    ``replica`` is the index in the group env, ``member`` the index within the group, ``step`` the
    number of actions taken so far.
    """

    task: str
    observation: Obs
    admissible_actions: Actions | None
    info: Mapping[str, Any]
    group: int
    replica: int
    member: int
    trajectory: int
    step: int
    group_seed: int
    format_action: Callable[[str], str]
    expert_action: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One decision to make: chat messages and the view behind them. Compared by identity.

    ``omitted``: turns that the memory showed and the budget left out.
    """

    messages: tuple[Message, ...]
    view: View
    omitted: int = 0

    @property
    def text(self) -> str:
        """All text of the messages; images are left out."""
        return "\n\n".join(_content_text(message["content"]) for message in self.messages)

    @property
    def images(self) -> list[Any]:
        """All images, in the order of their places in the messages."""
        return [
            part["image"]
            for message in self.messages
            if not isinstance(message["content"], str)
            for part in message["content"]
            if part["type"] == "image"
        ]

    def pil_images(self) -> list[Any]:
        """:attr:`images` as PIL images, as Hugging Face processors take them."""
        return [as_pil(image) for image in self.images]

    def chat(self) -> list[dict[str, Any]]:
        """Messages as a Hugging Face processor's ``apply_chat_template`` takes them.

        All contents are lists of parts; images are PIL images, one ``{"type": "image"}`` part each,
        so placeholders and images cannot disagree. Text is never searched for placeholders.
        """
        return [
            {
                "role": message["role"],
                "content": [with_pil(part) for part in _parts(message["content"])],
            }
            for message in self.messages
        ]


def as_pil(image: Any) -> Any:
    """A PIL image of a uint8 array (height, width, 3); PIL images pass through."""
    return pillow("PIL images").Image.fromarray(image) if hasattr(image, "shape") else image


def image_part(image: Any) -> dict[str, Any]:
    """A picture as a part of a message's content."""
    return {"type": "image", "image": as_pil(image)}


def with_pil(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a message's content, a picture as a PIL image."""
    return part if part["type"] == "text" else image_part(part["image"])


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


@record
class Completion:
    """A policy's answer. ``error``: the call failed; it closes that replica only.

    ``prompt_ids``, ``token_ids`` and ``logprobs`` are the policy's own tokenisation, and ``pictures`` its
    own form of the prompt's images, kept for training; ``finish_reason`` "length" marks a reply cut at
    the token limit.
    """

    text: str
    prompt_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    finish_reason: str | None = None
    error: str | None = None
    pictures: Sequence[Any] = ()


@record
class Step:
    """One decision: prompt, answer, what reached the environment, what came back.

    ``observation`` and ``anchor`` are as seen before acting, ``info`` and ``next_observation`` as after
    it. ``format_valid``
    is the parser's verdict, ``action_valid`` the environment's.
    """

    prompt: Prompt
    completion: Completion
    action: str
    format_valid: bool
    action_valid: bool
    group: int
    replica: int
    trajectory: int
    step: int
    observation: Obs
    anchor: str
    reward: float
    terminated: bool
    truncated: bool
    error: str | None
    info: Mapping[str, Any]
    next_observation: Obs


@dataclass(frozen=True, slots=True)
class Start:
    """How a trajectory began: a reset, or a fork of ``parent`` after its first ``parent_steps``."""

    trajectory: int
    group: int
    replica: int
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    parent: int | None = None
    parent_steps: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A remark that a memory puts among the steps it shows (a summary, a fact looked up)."""

    text: str


Shown = Step | Note
"""What a memory returns: past steps and notes, in the order in which they are shown."""
