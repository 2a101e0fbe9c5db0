"""Prompt builders: from a view and what the memory shows to chat messages.

Every prompt is built afresh from the task, the shown past and the current observation, so it does
not grow with the episode. A budget drops the oldest turns whole and says so; the task is never cut,
the current observation only as a last resort and visibly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agent_envs.agent import memory as memories
from agent_envs.agent.memory import Memory
from agent_envs.agent.records import Message, Note, Prompt, Shown, Step, View
from agent_envs.agent.template import Parts, Template, merge
from agent_envs.core.env import Obs
from agent_envs.core.errors import OptionError, PromptOverflow, positive
from agent_envs.core.profile import PromptSpec

_NOTHING: dict[int, Any] = {}

PROMPT_NAMES = frozenset(
    (
        "task observation admissible_actions history history_length step_count current_step omitted"
    ).split()
)
TURN_NAMES = frozenset(("observation", "action", "step"))


class PromptBuilder(Protocol):
    """Anything with ``build``. ``memory`` (optional) replaces the profile's default memory."""

    def build(self, view: View, past: Sequence[Shown]) -> Prompt:
        """The prompt of one decision; PromptOverflow where nothing fits the budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a prompt may be.

    Args:
        limit: of the text (and images), in the units of ``count``; None for none.
        count: length of a text.
        image_size: what one image costs in those units: a number, or a function of the image.
        max_images: number of images.
        max_pixels: pixels of all images together.
    """

    limit: int | None = None
    count: Callable[[str], int] = len
    image_size: int | Callable[[Any], int] = 0
    max_images: int | None = None
    max_pixels: int | None = None

    def fits(self, content: str | Parts) -> bool:
        if isinstance(content, str):
            return self.limit is None or self.count(content) <= self.limit
        images = [part for part in content if not isinstance(part, str)]
        if self.max_images is not None and len(images) > self.max_images:
            return False
        if self.max_pixels is not None and sum(map(pixels, images)) > self.max_pixels:
            return False
        if self.limit is None:
            return True
        # part by part: no token reaches across a picture
        text = sum(self.count(part) for part in content if isinstance(part, str))
        return text + sum(map(self._size, images)) <= self.limit

    def _size(self, image: Any) -> int:
        return self.image_size if isinstance(self.image_size, int) else self.image_size(image)


def pixels(image: Any) -> int:
    """Pixels of an array (height, width, ...) or a PIL image."""
    if hasattr(image, "shape"):
        return int(image.shape[0] * image.shape[1])
    return int(image.width * image.height)


def budget_of(
    max_prompt_tokens: int | None = None,
    tokenizer: Any = None,
    max_prompt_chars: int | None = None,
    image_size: int | Callable[[Any], int] | None = None,
    max_images: int | None = None,
    max_pixels: int | None = None,
) -> Budget | None:
    """A budget from a builder's options: tokens with a tokenizer, else characters; and images.

    Args:
        max_prompt_tokens: counted by ``tokenizer``: anything with ``encode(text)``, or a callable.
        max_prompt_chars: without a tokenizer.
        image_size, max_images, max_pixels: see :class:`Budget`.
    """
    tokens, chars, images, dots = (
        None if value is None else positive(name, value)
        for name, value in (
            ("max_prompt_tokens", max_prompt_tokens), ("max_prompt_chars", max_prompt_chars),
            ("max_images", max_images), ("max_pixels", max_pixels),
        )
    )  # fmt: skip
    if isinstance(image_size, int):
        positive("image_size", image_size)
    if tokens is not None and tokenizer is None:
        raise OptionError("max_prompt_tokens needs a tokenizer (or use max_prompt_chars)")
    if tokens is None and chars is None and images is None and dots is None:
        return None
    encode = getattr(tokenizer, "encode", tokenizer)
    count = len if tokens is None else lambda text: len(encode(text))
    return Budget(chars if tokens is None else tokens, count, image_size or 0, images, dots)


def observation_parts(observation: Obs) -> str | Parts:
    """An observation as text and images: ``str``, an image, or a dict of ``image`` and ``text``."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, dict):
        return merge([observation[key] for key in ("image", "text") if key in observation])
    return [observation]


def without_images(observation: Obs) -> str:
    """The text of an observation; ``(a picture)`` where there is none."""
    parts = observation_parts(observation)
    if isinstance(parts, str):
        return parts
    return "".join(part for part in parts if isinstance(part, str)) or "(a picture)"


def as_content(parts: str | Parts) -> Any:
    """Message content: a plain ``str``, or a list of typed parts where there are images."""
    if isinstance(parts, str):
        return parts
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]


def omitted_note(count: int) -> str:
    return f"({count} earlier turn{'s' * (count != 1)} left out to fit.)\n" if count else ""


def cut_text(text: str, keep: int) -> str:
    """The first ``keep`` characters and a mark that says how many are missing."""
    return f"{text[:keep]} [... {len(text) - keep} characters left out ...]"


class TemplatePrompt:
    """One user message (and a system message where the spec has one) from the spec's templates.

    Args:
        spec: templates; see :class:`~agent_envs.core.profile.PromptSpec`.
        history_images: show the images of past steps too, or only their text.
        budget: ``max_prompt_tokens`` with ``tokenizer``, or ``max_prompt_chars``; ``image_size``,
            ``max_images``, ``max_pixels``. Over budget, the oldest turns go first, whole.

    Raises:
        TemplateError: a template names an unknown placeholder.
    """

    def __init__(
        self,
        spec: PromptSpec,
        *,
        history_images: bool = True,
        **budget: Any,
    ) -> None:
        self._first = Template(spec.first, PROMPT_NAMES)
        self._later = Template(spec.later or spec.first, PROMPT_NAMES)
        self._turn = Template(spec.turn, TURN_NAMES)
        self._system: tuple[Message, ...] = (
            ({"role": "system", "content": spec.system},) if spec.system else ()
        )
        self._budget = budget_of(**budget)
        self._history_images = history_images
        self._shown: dict[int, dict[int, tuple[Shown, str | Parts]]] = {}

    def build(self, view: View, past: Sequence[Shown]) -> Prompt:
        turns = self._turns(view.replica, past)
        content, omitted = self._fill(view, turns, 0), 0
        if self._budget is not None and not self._fits(content):
            content, omitted = self._fitting(view, turns)
        message = {"role": "user", "content": as_content(content)}
        return Prompt((*self._system, message), view, omitted)

    def render(self, view: View, dropped: int = 0) -> str | Parts:
        """The user message without history; ``dropped`` turns are said to be left out."""
        return self._fill(view, [], dropped)

    def _turns(self, replica: int, past: Sequence[Shown]) -> list[str | Parts]:
        """The shown past, rendered; what the replica's last prompt showed is not rendered again."""
        known = self._shown.get(replica, _NOTHING)
        shown: dict[int, tuple[Shown, str | Parts]] = {}
        turns = []
        for item in past:
            key = id(item)  # the entry holds the item, so its id is not reused meanwhile
            entry = known.get(key) or (item, self._show(item))
            shown[key] = entry
            turns.append(entry[1])
        self._shown[replica] = shown
        return turns

    def _show(self, item: Shown) -> str | Parts:
        if isinstance(item, Note):
            return item.text
        observation = observation_parts(item.observation)
        if not self._history_images:
            observation = without_images(item.observation)
        return self._turn.fill(
            {
                "observation": observation,
                "action": item.action,
                "step": str(item.step + 1),
            }
        )

    def _fitting(self, view: View, turns: list[str | Parts]) -> tuple[str | Parts, int]:
        """Fewer turns, then a shortened observation; and how many turns are left out."""
        # the most turns that fit: with more left out it only gets shorter
        low, high = 1, len(turns)
        while low <= high:
            middle = (low + high) // 2
            if self._fits(self._fill(view, turns, middle)):
                high = middle - 1
            else:
                low = middle + 1
        if low <= len(turns):
            return self._fill(view, turns, low), low
        return self._cut(view, turns), len(turns)

    def _cut(self, view: View, turns: list[str | Parts]) -> str | Parts:
        """Shorten the current observation as little as needed."""
        text, dropped = view.observation, len(turns)
        if not isinstance(text, str):
            raise PromptOverflow("the prompt exceeds its budget, and its observation cannot be cut")
        low, high = 0, len(text)  # low fits, if anything does; high does not
        if not self._fits(self._fill(view, turns, dropped, cut_text(text, 0))):
            raise PromptOverflow(
                f"task and instructions alone exceed the prompt budget of {self._limit()}"
            )
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(self._fill(view, turns, dropped, cut_text(text, middle))):
                low = middle
            else:
                high = middle
        return self._fill(view, turns, dropped, cut_text(text, low))

    def _limit(self) -> int:
        return (self._budget.limit if self._budget else None) or 0

    def _fits(self, content: str | Parts) -> bool:
        if self._budget is None:
            return True
        if self._system:
            system = self._system[0]["content"]
            content = system + content if isinstance(content, str) else [system, *content]
        return self._budget.fits(content)

    def _fill(
        self, view: View, turns: list[str | Parts], dropped: int, observation: str | None = None
    ) -> str | Parts:
        shown = turns[dropped:]
        template = self._later if shown or dropped else self._first
        admissible = view.admissible_actions
        return template.fill(
            {
                "task": view.task,
                "observation": (
                    observation_parts(view.observation) if observation is None else observation
                ),
                "admissible_actions": "any text" if admissible is None else admissible.quoted,
                "history": _lines(shown),
                "history_length": str(len(shown)),
                "step_count": str(view.step),
                "current_step": str(view.step + 1),
                "omitted": omitted_note(dropped),
            }
        )


def _lines(turns: Sequence[str | Parts]) -> str | Parts:
    if all(isinstance(turn, str) for turn in turns):
        return "\n".join(turns)  # type: ignore[arg-type]
    pieces: Parts = []
    for turn in turns:
        pieces += ["\n"] if pieces else []
        pieces += [turn] if isinstance(turn, str) else turn
    return merge(pieces)


class ConversationPrompt:
    """Concatenated mode: one growing conversation instead of a fresh prompt at each step.

    The first user message is the spec's first prompt; later ones are ``turn``. Over budget, the
    oldest turns after the first are dropped whole, and the next message says so.

    Args:
        spec: its ``first`` and ``system`` are used.
        history_images: keep the images of past turns (the first message keeps its own).
        turn: later user messages; placeholders as in the spec.
        budget: as for :class:`TemplatePrompt`.
    """

    def __init__(
        self,
        spec: PromptSpec,
        *,
        history_images: bool = True,
        turn: str = "{omitted}Observation: {observation}\nAdmissible actions: [{admissible_actions}]",
        **budget: Any,
    ) -> None:
        self.memory: Memory = memories.full()
        self._budget = budget_of(**budget)
        self._has_system = bool(spec.system)
        self._turns: dict[int, dict[int, tuple[Step, Message]]] = {}
        self._opening = TemplatePrompt(spec)
        self._next = TemplatePrompt(PromptSpec(first=turn))
        self._history_images = history_images

    def build(self, view: View, past: Sequence[Shown]) -> Prompt:
        steps = [item for item in past if isinstance(item, Step)]
        if not steps:
            prompt = self._opening.build(view, ())
            if not self._fits(prompt.messages):
                raise PromptOverflow("the first message alone exceeds the prompt budget")
            return prompt
        turns = self._rendered(view.replica, steps)
        low, high = 0, len(steps)  # the fewest dropped turns that fit; all of them never does
        while low < high:
            middle = (low + high) // 2
            if self._fits(self._messages(view, steps, turns, middle)):
                high = middle
            else:
                low = middle + 1
        if low == len(steps):
            raise PromptOverflow("the first and the current message alone exceed the prompt budget")
        return Prompt(self._messages(view, steps, turns, low), view, low)

    def _rendered(self, replica: int, steps: list[Step]) -> list[Message]:
        """The user message of each step but the first; rendered once per step."""
        known = self._turns.get(replica, {})
        turns = {id(s): known.get(id(s)) or (s, self._past_turn(s.prompt.view)) for s in steps[1:]}
        self._turns[replica] = turns
        return [turns[id(step)][1] for step in steps[1:]]

    def _messages(
        self, view: View, steps: list[Step], turns: list[Message], dropped: int
    ) -> tuple[Message, ...]:
        messages = [*self._first_messages(steps[0]), _reply(steps[0])]
        for step, turn in zip(steps[1 + dropped :], turns[dropped:], strict=True):
            messages += [turn, _reply(step)]
        return (*messages, self._turn(view, dropped))

    def _first_messages(self, step: Step) -> list[Message]:
        """The episode's opening; a memory that starts later has its first turn joined to it."""
        *system, first = step.prompt.messages[: 1 + self._has_system]
        if step.step == 0:
            return [*system, first]
        parts = [*_content_parts(first["content"]), "\n\n" + omitted_note(step.step)]
        parts += _content_parts(self._turn(step.prompt.view, 0)["content"])
        return [*system, {"role": "user", "content": as_content(merge(parts))}]

    def _past_turn(self, view: View) -> Message:
        if self._history_images:
            return self._turn(view, 0)
        return self._turn(replace(view, observation=without_images(view.observation)), 0)

    def _turn(self, view: View, dropped: int) -> Message:
        return {"role": "user", "content": as_content(self._next.render(view, dropped))}

    def _fits(self, messages: Sequence[Message]) -> bool:
        if self._budget is None:
            return True
        parts: Parts = []
        for message in messages:
            parts += _content_parts(message["content"])
        return self._budget.fits(merge(parts))


def _content_parts(content: Any) -> Parts:
    """Message content as text and images."""
    if isinstance(content, str):
        return [content]
    return [part["text"] if part["type"] == "text" else part["image"] for part in content]


def _reply(step: Step) -> Message:
    return {"role": "assistant", "content": step.completion.text}
