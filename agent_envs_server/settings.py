"""What a server is told: environments, address, token, limits. Travels to workers as JSON."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from agent_envs.core.errors import OptionError, positive, seconds
from agent_envs.core.sockets import LOOPBACK
from agent_envs.registration import registered_ids


@dataclass(frozen=True)
class Limits:
    """What one client may take.

    Args:
        sessions: open at once, over all workers.
        replicas: in one session.
        message: bytes of a frame; a larger one closes the connection with code 1009.
        steps: replica steps in one session; the client goes on in a new one.
        idle: seconds without a request after which a session is closed.
        step: seconds that one replica may take for one call.
    """

    sessions: int = 1024
    replicas: int = 4096
    message: int = 64 << 20
    steps: int = 10_000_000
    idle: float = 900.0
    step: float = 60.0

    def __post_init__(self) -> None:
        for name in ("sessions", "replicas", "message", "steps"):
            positive(f"{name} (serve --max-{name})", getattr(self, name))
        for name in ("idle", "step"):
            seconds(f"{name} (serve --{name}-timeout)", getattr(self, name))


@dataclass(frozen=True)
class Settings:
    """How to serve.

    Args:
        envs: ids; empty for all registered ones.
        default_env: id that OpenEnv clients get at the bare URL, besides its mount; None for none.
        modules: imported first, by each worker: they register environments of users.
        host: address; any but this machine's own needs a token.
        port: 0 takes a free one.
        workers: processes that share the port.
        token: demanded from every client but for ``/health``.
        allow_paths: let clients name files and URLs of this machine in options such as ``data_dir``.
        state_key: what states are signed with (hex); servers with the same key restore each
            other's. Default: a new one, for this server and its workers.

    Raises:
        OptionError: a value cannot be used.
    """

    envs: tuple[str, ...] = ()
    default_env: str | None = None
    modules: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    allow_paths: bool = False
    state_key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        positive("workers", self.workers)
        if not 0 <= self.port <= 65535:
            raise OptionError(f"port must be from 0 to 65535, got {self.port}")
        if self.host not in LOOPBACK and not self.token:
            raise OptionError(
                f"host {self.host} is open to others: give a token too "
                "(--token, or AGENT_ENVS_SERVER_TOKEN)"
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise OptionError("the token must be printable ASCII")
        if self.default_env is not None and self.envs and self.default_env not in self.envs:
            raise OptionError(
                f"default_env {self.default_env} is not served; served: {', '.join(self.envs)}"
            )
        try:
            short = len(bytes.fromhex(self.state_key)) < 16
        except ValueError:
            short = True
        if short:
            raise OptionError("state_key must be at least 32 hex digits")

    def ids(self) -> tuple[str, ...]:
        """The ids that are served."""
        return self.envs or registered_ids()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        known |= {name: tuple(known[name]) for name in ("envs", "modules")}
        return cls(**{**known, "limits": Limits(**values["limits"])})
