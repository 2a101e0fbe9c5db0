"""The model as a policy of the hub: prompts are tokenised once, sampled ids are kept as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agent_envs.agent import Completion, Prompt

Generate = Callable[..., tuple[list[list[int]], list[list[float]] | None]]
"""Token ids of prompts -> (ids of replies, their log-probabilities or None)."""


class Encoded(NamedTuple):
    """A prompt as the model reads it; ``error``: it cannot be read, which closes its replica."""

    ids: list[int]
    pictures: tuple[Any, ...] = ()
    error: str | None = None


class ModelPolicy:
    """Answers prompts by sampling from a language model.

    Args:
        tokenizer: its chat template renders the messages.
        generate: samples replies; only the prompts of replicas that still play get here.
        max_prompt_tokens: a longer prompt (only a prompt builder of the user's can make one) closes
            its replica.
        max_completion_tokens: a reply of that length without an end token was cut.
        eos_ids: ids that end a reply.
        rows: prompts per call of ``generate``.
        template: keywords of the chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        generate: Generate,
        *,
        max_prompt_tokens: int,
        max_completion_tokens: int,
        eos_ids: Sequence[int],
        rows: int = 256,
        template: dict[str, Any] | None = None,
    ) -> None:
        self._tokenizer, self._generate = tokenizer, generate
        self._max_prompt, self._max_completion = max_prompt_tokens, max_completion_tokens
        self._eos, self._rows, self._template = frozenset(eos_ids), rows, dict(template or {})
        self.completion_tokens = 0

    def act(self, prompts: Sequence[Prompt]) -> list[Completion]:
        encoded = self.encode(prompts)
        answers = [self._refused(prompt) for prompt in encoded]
        asked = [i for i, answer in enumerate(answers) if answer is None]
        for start in range(0, len(asked), self._rows):
            chunk = asked[start : start + self._rows]
            replies, logprobs = self._sample([encoded[i] for i in chunk])
            for place, i in enumerate(chunk):
                answers[i] = self._completion(
                    encoded[i], replies[place], None if logprobs is None else logprobs[place]
                )
        return [answer for answer in answers if answer is not None]

    def encode(self, prompts: Sequence[Prompt]) -> list[Encoded]:
        """Token ids of each prompt's messages, ready for a reply."""
        if not prompts:
            return []
        chats = [prompt.messages for prompt in prompts]
        return [Encoded(ids) for ids in encode_chats(self._tokenizer, chats, self._template)]

    def _sample(self, asked: Sequence[Encoded]) -> Any:
        return self._generate([prompt.ids for prompt in asked])

    def _refused(self, prompt: Encoded) -> Completion | None:
        ids, error = prompt.ids, prompt.error
        if error is None and len(ids) <= self._max_prompt:
            return None
        error = (
            error or f"the prompt has {len(ids)} tokens, more than the {self._max_prompt} that fit"
        )
        return Completion("", prompt_ids=ids, token_ids=(), error=error)

    def _completion(
        self, prompt: Encoded, ids: list[int], logprobs: list[float] | None
    ) -> Completion:
        ended = bool(ids) and ids[-1] in self._eos
        self.completion_tokens += len(ids)
        return Completion(
            self._tokenizer.decode(ids, skip_special_tokens=True),
            prompt_ids=prompt.ids,
            token_ids=ids,
            logprobs=logprobs,
            pictures=prompt.pictures,
            finish_reason="stop" if ended or len(ids) < self._max_completion else "length",
        )


def encode_chats(
    tokenizer: Any, chats: Sequence[Sequence[Any]], template: dict[str, Any]
) -> list[list[int]]:
    """Token ids of chats up to where the reply begins."""
    ids = tokenizer.apply_chat_template(
        [[dict(message) for message in chat] for chat in chats],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **template,
    )
    return [list(row) for row in ids]


class TextLength:
    """Token counts for prompt budgets; texts that cannot exceed ``limit`` are not tokenised.

    No tokenizer makes more tokens than bytes.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._tokenizer, self._limit = tokenizer, limit

    def encode(self, text: str) -> Sequence[int]:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size <= self._limit:
            return range(size)
        ids: Sequence[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids
