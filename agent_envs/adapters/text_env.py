"""One environment as a chat: messages go to the model, its reply comes back. Every bridge is built on it.

::

    env = TextEnv("AgentEnv/Sokoban-v0")
    turn = env.reset(seed=7)
    while not turn.done:
        turn = env.step(model(turn.messages))
        total += turn.reward
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium.error import ResetNeeded

from agent_envs.agent.group import AgentGroup
from agent_envs.agent.memory import Memory
from agent_envs.agent.parsing import ActionParser, parser_of
from agent_envs.agent.prompt import ConversationPrompt, PromptBuilder, observation_parts
from agent_envs.agent.records import Completion, Message, Prompt, image_part, with_pil
from agent_envs.core.env import Obs
from agent_envs.core.errors import AgentEnvError
from agent_envs.core.profile import PromptSpec, Spec
from agent_envs.core.seeding import check_seed
from agent_envs.registration import make_group


@dataclass(frozen=True, slots=True)
class TextTurn:
    """Where an episode stands.

    Args:
        messages: what to ask the model next; empty once the episode is over. Contents are ``str``, or lists
            of parts ``{"type": "text", "text": str}`` and ``{"type": "image", "image": PIL image}``.
        observation: the environment's own observation.
        reward: of the last reply; 0 after a reset.
        error: why the environment (or the prompt) failed; such an episode counts as truncated.
        info: the environment's (read-only).
        prompt: what the messages were made of; None once the episode is over.
    """

    messages: list[dict[str, Any]]
    observation: Obs
    reward: float
    terminated: bool
    truncated: bool
    error: str | None
    info: Mapping[str, Any]
    prompt: Prompt | None

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class TextEnv:
    """An agent group of one replica, for loops that ask one environment at a time.

    Args:
        env_id: a registered id, or ``"module:id"``.
        conversation: the caller appends messages and replies to one growing chat: each turn brings only
            what is new. Otherwise each turn's messages are a whole prompt, which the memory keeps short.
        memory, prompt, parser: as for :class:`~agent_envs.agent.AgentGroup`.
        untagged: ``"action"`` takes a reply without any mark of an action as the action itself. With a
            ``parser`` of your own it is not used.
        options: the environment's own options.
    """

    def __init__(
        self,
        env_id: str,
        *,
        conversation: bool = False,
        memory: Memory | None = None,
        prompt: PromptBuilder | PromptSpec | None = None,
        parser: ActionParser | None = None,
        untagged: str | None = None,
        **options: Any,
    ) -> None:
        group = make_group(env_id, **options)
        profile = group.profile
        if parser is None and untagged is not None:
            spec = profile.parser
            parser = parser_of(Spec(spec.name, {**spec.options, "untagged": untagged}))
        if conversation and (prompt is None or isinstance(prompt, PromptSpec)):
            prompt = ConversationPrompt(prompt or profile.prompt)
        self._agent = AgentGroup(group, memory=memory, prompt=prompt, parser=parser)
        self._conversation = conversation
        self._prompt: Prompt | None = None
        self.replies: list[str] = []  # of this episode

    @property
    def format_action(self) -> Any:
        """A function that writes an action as a reply that is read back as that action."""
        return self._agent.parser.format

    @property
    def seed(self) -> int:
        """What started this episode; with the same ``options`` it starts it anywhere else."""
        return int(self._agent.group.group_seeds[0])

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> TextTurn:
        """Start an episode. The same seed and options mean the same start everywhere.

        Args:
            seed: that of a single environment's ``reset``; None goes on with the last one's sequence.
            options: ``task_index`` or the environment's own start options.

        Raises:
            AgentEnvError: this start failed; says why.
        """
        given = dict(options or {})
        if "task_index" in given:
            given["task_index"] = [given["task_index"]]
        seeds = None if seed is None else [check_seed(seed)]
        self._prompt, self.replies = None, []
        prompts = self._agent.reset(seeds, given)
        if not prompts:
            raise AgentEnvError(
                f"no episode with seed {self.seed}: {self._agent.failures.get(0, 'it is over')}"
            )
        self._prompt = prompts[0]
        result = self._agent.group.result(0)
        info = {**result.info, "data_source": self._agent.group.tasks.source}
        messages = _messages(self._prompt.messages)
        return TextTurn(messages, result.observation, 0.0, False, False, None, info, self._prompt)

    def step(self, reply: Completion | str) -> TextTurn:
        """Carry out the action in ``reply``; a reply without one is a counted turn.

        Raises:
            ResetNeeded: no episode runs.
            ValueError: the reply is no text; nothing happened.
        """
        if self._prompt is None:
            raise ResetNeeded("the episode is over or has not begun: call reset()")
        turn = self._agent.step([reply], [self._prompt])
        self.replies.append(reply if isinstance(reply, str) else reply.text)
        (step,) = turn.steps
        self._prompt = turn.prompts[0] if turn.prompts else None
        asked = self._prompt.messages if self._prompt is not None else ()
        return TextTurn(
            _messages(asked[-1:] if self._conversation else asked),
            step.next_observation, step.reward, step.terminated, step.truncated, step.error,
            step.info, self._prompt,
        )  # fmt: skip

    def close(self) -> None:
        self._agent.close()


def text_and_images(messages: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The messages' contents as one: a text, or parts where there are images."""
    contents = [message["content"] for message in messages]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    return [
        part
        for content in contents
        for part in (
            [{"type": "text", "text": content + "\n\n"}] if isinstance(content, str) else content
        )
    ]


def observation_content(observation: Obs) -> str | list[dict[str, Any]]:
    """An observation alone as a message's content."""
    parts = observation_parts(observation)
    if isinstance(parts, str):
        return parts
    return [
        {"type": "text", "text": part} if isinstance(part, str) else image_part(part)
        for part in parts
    ]


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [
        {"role": message["role"], "content": _content(message["content"])} for message in messages
    ]


def _content(content: Any) -> Any:
    return content if isinstance(content, str) else [with_pil(part) for part in content]
