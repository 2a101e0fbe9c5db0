"""Memories: functions from a replica's past steps to what the prompt shows of them.

They hold no state of their own, so nothing leaks between replicas and a fork needs no copies. Those
that cost something cache by trajectory and length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_envs.agent.records import Note, Shown, Step
from agent_envs.core.env import Obs
from agent_envs.core.errors import OptionError, made, one_of
from agent_envs.core.profile import Spec

Memory = Callable[[Sequence[Step]], Sequence[Shown]]


def none() -> Memory:
    """Shows nothing: each prompt holds the current observation only."""
    return lambda past: ()


def full() -> Memory:
    """Shows everything."""
    return lambda past: past


def window(size: int) -> Memory:
    """Shows the last ``size`` steps."""
    if size < 0:
        raise OptionError(f"a window's size must not be negative, got {size}")
    return lambda past: past[-size:] if size else ()


def token_budget(budget: int, count: Callable[[str], int] = len) -> Memory:
    """Shows as many of the latest steps as fit ``budget``, whole ones only.

    Args:
        count: length of a text; characters by default, ``lambda t: len(tokenizer.encode(t))``
            for tokens.
    """

    def show(past: Sequence[Step]) -> Sequence[Step]:
        left, first = budget, len(past)
        while first and (left := left - count(_turn_text(past[first - 1]))) >= 0:
            first -= 1
        return past[first:]

    return show


def key_events(predicate: Callable[[Step], bool], recent: int = 1) -> Memory:
    """Shows the steps that ``predicate`` picks, and the ``recent`` latest ones."""

    def show(past: Sequence[Step]) -> Sequence[Step]:
        edge = len(past) - recent
        return [step for i, step in enumerate(past) if i >= edge or predicate(step)]

    return show


def summary(
    summarise: Callable[[Sequence[Step]], str], recent: int = 2, cache_size: int = 1024
) -> Memory:
    """Replaces all but the ``recent`` latest steps by ``summarise(steps)``.

    Results are cached by trajectory and number of steps, so an expensive callable (an LLM) runs
    once for each.
    """
    cache: dict[tuple[int, int], str] = {}

    def show(past: Sequence[Step]) -> Sequence[Shown]:
        older, latest = past[: max(0, len(past) - recent)], past[max(0, len(past) - recent) :]
        if not older:
            return latest
        key = (older[-1].trajectory, len(older))
        if key not in cache:
            if len(cache) >= cache_size:
                del cache[next(iter(cache))]  # the oldest entry
            cache[key] = summarise(older)
        return [Note(cache[key]), *latest]

    return show


def knowledge(lookup: Callable[[Sequence[Step]], Sequence[str]], inner: Memory) -> Memory:
    """Puts what ``lookup(past)`` finds in front of what ``inner`` shows."""
    return lambda past: [*(Note(text) for text in lookup(past)), *inner(past)]


MEMORIES: dict[str, Callable[..., Memory]] = {
    "none": none,
    "full": full,
    "window": window,
    "token_budget": token_budget,
}


def memory_of(spec: Spec) -> Memory:
    """The memory that a profile asks for."""
    one_of("memory", spec.name, MEMORIES)
    return made(f"memory {spec.name}", MEMORIES[spec.name], spec.options)


def observation_text(observation: Obs) -> str:
    """The text of an observation; images have none."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, dict):
        return str(observation.get("text", ""))
    return ""


def _turn_text(step: Step) -> str:
    return observation_text(step.observation) + step.action
