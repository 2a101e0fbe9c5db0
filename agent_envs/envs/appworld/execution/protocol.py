"""What every executor offers, and the observation's last touches that all of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent_envs.core.errors import AgentEnvError, OptionError, finite, positive

Call = Callable[[str, str, dict[str, Any]], Any]
"""``(app, api, arguments) -> JSON``; raises ApiError, which becomes the agent's Exception."""

MAX_CODE = 1_000_000
"""Characters of code that one execution takes."""

_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


class ExecutorError(AgentEnvError):
    """An executor cannot start or cannot make a session; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one execution, and of one replica's memory.

    Attributes:
        seconds: of one execution; the time that API calls take on the host's side is not counted.
        memory_mb: memory of one replica, in MiB, besides the interpreter itself.
        output: bytes (UTF-8) kept of what an execution prints; the rest is cut, with a mark.
        calls: API calls in one execution.

    Raises:
        OptionError: a bound is not a positive number.
    """

    seconds: float = 10.0
    memory_mb: int = 256
    output: int = 200_000
    calls: int = 1000

    def __post_init__(self) -> None:
        if finite("seconds", self.seconds) <= 0:
            raise OptionError(f"seconds must be above 0, got {self.seconds!r}")
        for name in ("memory_mb", "output", "calls"):
            positive(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class Execution:
    """What one execution left behind.

    Attributes:
        output: the observation, never empty.
        failed: the code did not run to its end.
        lost: the variables are gone, and ``output`` says so; the next execution begins with none.
        calls: API calls that reached the host.
    """

    output: str
    failed: bool
    lost: bool
    calls: int


class Session(Protocol):
    """One replica's namespace: variables stay from one execution to the next."""

    def run(self, code: str, call: Call) -> Execution:
        """Execute ``code``; ``call`` is called in this thread for each API call of the code."""

    def snapshot(self) -> bytes | None:
        """The namespace as bytes, or None where only replaying the executed code gives it back."""

    def close(self) -> None:
        """Forget the namespace; closing twice is fine."""


class Executor(Protocol):
    """Runs agents' code; one per process serves all replicas and starts when first needed."""

    def session(
        self, *, now: str, seed: int, apps: Mapping[str, Sequence[str]], limits: Limits
    ) -> Session:
        """A new namespace.

        Args:
            now: where the simulated clock starts, ISO 8601.
            seed: of ``random`` in the namespace.
            apps: names of the apps and of their APIs, for ``dir``; the host judges the calls.
            limits: bounds of every execution.
        """

    def close(self) -> None:
        """End all sessions."""


def finished(text: str, limit: int) -> str:
    """``text`` as an observation: valid Unicode, addresses masked, at most ``limit`` bytes and a mark.

    Addresses differ from run to run and say nothing to an agent.
    """
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) > limit:
        kept = raw[:limit].decode("utf-8", "ignore")
        text = f"{kept}\n[The output was cut here: only its first {limit} bytes are kept.]"
    else:
        text = raw.decode("utf-8")
    return _ADDRESS.sub("at 0x...", text)


def refused(code: str) -> Execution | None:
    """The outcome of code that is not worth running: empty, or too long."""
    if not code.strip():
        return Execution("No code available to execute.", True, False, 0)
    if len(code) > MAX_CODE:
        text = (
            f"Execution failed. The code has {len(code)} characters; at most {MAX_CODE} are taken."
        )
        return Execution(text, True, False, 0)
    return None
