"""What passes between the group env and a backend: plain picklable data, no live objects.

A backend is a transport with a handful of methods; inline, worker processes, and later Ray and the
server's client all look the same to :class:`~agent_envs.group.vector.GroupVectorEnv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gymnasium.envs.registration import EnvSpec

from agent_envs.core.env import Obs


@dataclass(frozen=True, slots=True)
class Definition:
    """What a replica is made of: workers get the spec, not the id, so nothing must be registered."""

    spec: EnvSpec
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """How one replica starts."""

    seed: int | None
    options: Mapping[str, Any]


@dataclass(slots=True)
class Result:
    """Where one replica stands after a request. ``error`` closes it; then ``info`` may be empty."""

    observation: Obs = None
    info: dict[str, Any] = field(default_factory=dict)
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    error: str | None = None


def failure(error: BaseException | str) -> Result:
    """The result of a replica that could not go on."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return Result(truncated=True, error=text)


class Backend(Protocol):
    """Runs replicas, named by their index. Errors of a replica come back in its own result."""

    def start(self, definition: Definition, num_envs: int, group_size: int) -> None:
        """Get ready for ``num_envs`` replicas; called once."""

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        """Start episodes."""

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        """One action for each of the named replicas."""

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        """States, or the error that stands for one."""

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        """Continue from states; a state that cannot be restored raises and changes nothing."""

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        """The scripted expert's next actions; a failed Result where asking closed the replica."""

    def close(self) -> None:
        """Release everything; safe to repeat."""
