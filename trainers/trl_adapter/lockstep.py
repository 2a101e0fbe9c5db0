"""Sampling that all processes take part in at the same time.

With weights divided over processes (FSDP, ZeRO-3), with a vLLM server (which the main process asks for all)
and with an engine that spans several GPUs, one call of the sampler is one call on every process, with as
many prompts. Episodes end when they end, so processes have different numbers of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, tensor

from trainers.trl_adapter.policy import Generate


class Lockstep:
    """Fills up this process's calls of ``generate`` to what the process with the most prompts asks for.

    Args:
        generate: samples replies; all processes have to call it together.
        most: largest value over all processes; a collective operation.
        filler: token ids of a prompt that stands in for none; its reply is thrown away.
    """

    def __init__(
        self, generate: Generate, most: Callable[[Tensor], Tensor], filler: list[int]
    ) -> None:
        self._generate, self._most, self._filler = generate, most, filler

    def __call__(self, prompt_ids: list[list[int]]) -> tuple[list[list[int]], Any]:
        """Replies to this process's prompts, at least one."""
        ids, logprobs = self._ask(prompt_ids, self._rows(len(prompt_ids)))
        own = len(prompt_ids)
        return ids[:own], None if logprobs is None else logprobs[:own]

    def settle(self) -> None:
        """This process has nothing to ask for now: takes part until no other one has either.

        To be called before anything else that all processes do together.
        """
        while rows := self._rows(0):
            self._ask([], rows)

    def _rows(self, own: int) -> int:
        return int(self._most(tensor([own]))[0])

    def _ask(self, prompt_ids: list[list[int]], rows: int) -> tuple[list[list[int]], Any]:
        return self._generate(prompt_ids + [self._filler] * (rows - len(prompt_ids)))
