"""One client's replicas: reads requests, runs them, writes replies. Blocking."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium

import agent_envs
from agent_envs.core.errors import StateError
from agent_envs.core.seeding import check_seed
from agent_envs.core.spaces import check_text
from agent_envs.group import Definition, ResetRequest, Result, Shard
from agent_envs.group.shard import make_env
from agent_envs.group.wire import PROTOCOL_VERSION, pack_result
from agent_envs_server.counters import Counters
from agent_envs_server.paths import check_paths
from agent_envs_server.refusals import Refusal, field
from agent_envs_server.settings import Settings

CAPABILITIES = (
    "group_reset", "group_step", "get_states", "set_states", "fork", "expert_actions"
)  # fmt: skip


class Session:
    """The replicas of one connection.

    Attributes:
        one_thread: as the environment's profile says; False before one is open.
        at_work: index of the replica that runs, -1 for none, and since when (monotonic seconds).
    """

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._settings, self._counters = settings, counters
        self._limits, self._key = settings.limits, bytes.fromhex(settings.state_key)
        self._greeted = False
        self._shard: Shard | None = None
        self.one_thread = False
        self._env_id, self._num_envs, self._steps = "", 0, 0
        self.at_work: tuple[int, float] = (-1, time.monotonic())
        self._requests: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "open": self._open,
            **{name: getattr(self, f"_{name}") for name in CAPABILITIES},
        }

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request, without its id.

        Raises:
            Refusal: the request cannot be carried out; nothing was changed.
        """
        kind = message.get("type")
        run = self._requests.get(kind) if isinstance(kind, str) else None
        if run is None:
            raise Refusal(
                "UNKNOWN_TYPE", f"unknown request {kind!r:.80}; valid: {', '.join(self._requests)}"
            )
        if not self._greeted and kind != "hello":
            raise Refusal("NOT_OPEN", f"{kind}: say hello first")
        if self._shard is None and kind not in ("hello", "open"):
            raise Refusal("NOT_OPEN", f"{kind}: open an environment first")
        self._announce(-1)
        return {"type": "result", **run(message)}

    def close(self) -> None:
        if self._shard is not None:
            self._shard.close()
            self._shard = None

    # -- requests ------------------------------------------------------------------------------

    def _hello(self, message: Mapping[str, Any]) -> dict[str, Any]:
        version = message.get("version")
        if version != PROTOCOL_VERSION:
            raise Refusal(
                "VERSION_MISMATCH",
                f"the client speaks protocol version {version!r:.40}, this server "
                f"{PROTOCOL_VERSION} (agent-envs {agent_envs.__version__}): use the same release",
            )
        self._greeted = True
        return {
            "version": PROTOCOL_VERSION,
            "server": agent_envs.__version__,
            "envs": list(self._settings.ids()),
            "capabilities": list(CAPABILITIES),
            "max_message": self._limits.message,
            "max_replicas": self._limits.replicas,
        }

    def _open(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if self._shard is not None:
            raise Refusal(
                "ALREADY_OPEN", f"this session holds {self._env_id}: connect once more for another"
            )
        env_id = field(message, "env", str)
        if env_id not in self._settings.ids():
            raise Refusal(
                "UNKNOWN_ENV",
                f"this server has no {env_id!r:.120}; it has: {', '.join(self._settings.ids())}",
            )
        num_envs = field(message, "num_envs", int)
        if not 1 <= num_envs <= self._limits.replicas:
            raise Refusal(
                "VALIDATION_ERROR",
                f"num_envs must be from 1 to {self._limits.replicas} (serve --max-replicas), got {num_envs}",
            )
        options = field(message, "options", dict)
        self._check_paths(env_id, options)
        definition = Definition(gymnasium.spec(env_id), _names(options, "options"))
        probe = make_env(definition)
        profile = probe.profile
        probe.close()
        self._shard, self._env_id = Shard(definition, self._announce), env_id
        self._num_envs, self.one_thread = num_envs, profile.one_thread
        return {
            "env": env_id,
            "portable_state": profile.portable_state,
            "has_expert": profile.has_expert,
        }

    def _group_reset(self, message: Mapping[str, Any]) -> dict[str, Any]:
        requests: dict[int, ResetRequest] = {}
        for start in field(message, "starts", list):
            if not isinstance(start, dict):
                raise Refusal("VALIDATION_ERROR", "starts must be maps of indices, seed, options")
            options = _names(field(start, "options", dict), "options")
            self._check_paths(self._env_id, options)
            seed = start.get("seed")
            request = ResetRequest(None if seed is None else _checked(check_seed, seed), options)
            requests.update(dict.fromkeys(self._indices(start), request))
        return self._results(self._open_shard.reset(requests), message)

    def _group_step(self, message: Mapping[str, Any]) -> dict[str, Any]:
        indices, actions = self._indices(message), field(message, "actions", list)
        if len(actions) != len(indices):
            raise Refusal(
                "VALIDATION_ERROR",
                f"{len(indices)} indices need as many actions, got {len(actions)}",
            )
        for index, action in zip(indices, actions, strict=True):
            _checked(check_text, action, f"action of replica {index}")
            self._check_running(index)
        self._steps += len(indices)
        if self._steps > self._limits.steps:
            raise Refusal(
                "LIMIT_REACHED",
                f"this session has had its {self._limits.steps} steps (serve --max-steps): connect once more",
            )
        self._counters.add("replica_steps_total", len(indices))
        return self._results(
            self._open_shard.step(dict(zip(indices, actions, strict=True))), message
        )

    def _get_states(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {"states": self._states(self._indices(message))}

    def _set_states(self, message: Mapping[str, Any]) -> dict[str, Any]:
        indices, states = self._indices(message), field(message, "states", list)
        if len(states) != len(indices):
            raise Refusal(
                "VALIDATION_ERROR", f"{len(indices)} indices need as many states, got {len(states)}"
            )
        found = {i: self._verified(state) for i, state in zip(indices, states, strict=True)}
        return self._results(self._open_shard.set_states(found), message)

    def _fork(self, message: Mapping[str, Any]) -> dict[str, Any]:
        source, targets = field(message, "source", int), self._indices(message, "targets")
        self._check_index(source)
        (state,) = self._open_shard.get_states([source]).values()
        if not isinstance(state, bytes):
            raise Refusal("STATE_NOT_PORTABLE", f"replica {source} has no state: {state}")
        return self._results(self._open_shard.set_states(dict.fromkeys(targets, state)), message)

    def _expert_actions(self, message: Mapping[str, Any]) -> dict[str, Any]:
        found = self._open_shard.expert_actions(self._indices(message))
        return {
            "actions": [pack_result(a) if isinstance(a, Result) else a for a in found.values()],
        }

    # -- inside --------------------------------------------------------------------------------

    @property
    def _open_shard(self) -> Shard:
        assert self._shard is not None  # handle() lets nothing else through
        return self._shard

    def _announce(self, index: int) -> None:
        self.at_work = (index, time.monotonic())

    def _results(self, results: Mapping[int, Result], message: Mapping[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = {"results": [pack_result(result) for result in results.values()]}
        if message.get("states"):
            reply["states"] = self._states(results)
        return reply

    def _states(self, indices: Iterable[int]) -> list[list[Any]]:
        """``[state, signature]`` of each, or ``[None, why]``."""
        return [
            [state, self._sign(state)]
            if isinstance(state, bytes)
            else [None, f"{type(state).__name__}: {state}"]
            for state in self._open_shard.get_states(indices).values()
        ]

    def _sign(self, state: bytes) -> bytes:
        return hmac.digest(self._key, self._env_id.encode() + b"\0" + state, "sha256")

    def _verified(self, pair: Any) -> bytes:
        state, signature = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not isinstance(state, bytes) or not isinstance(signature, bytes):
            raise Refusal("VALIDATION_ERROR", "a state must be [bytes, signature]")
        if not hmac.compare_digest(signature, self._sign(state)):
            raise StateError(
                f"a state of {self._env_id} was not signed by this server: restore it where it came "
                "from, or start the servers with the same AGENT_ENVS_STATE_KEY"
            )
        return state

    def _indices(self, message: Mapping[str, Any], name: str = "indices") -> list[int]:
        indices: list[int] = field(message, name, list)
        for index in indices:
            self._check_index(index)
        if len(set(indices)) != len(indices):
            raise Refusal("VALIDATION_ERROR", f"{name} names a replica twice")
        return indices

    def _check_index(self, index: Any) -> None:
        if type(index) is not int or not 0 <= index < self._num_envs:
            raise Refusal(
                "VALIDATION_ERROR", f"replica {index!r:.40} is outside 0 to {self._num_envs - 1}"
            )

    def _check_running(self, index: int) -> None:
        env = self._open_shard.envs.get(index)
        if env is None or not env.started or env.terminated or env.truncated:
            state = "is over" if env is not None and env.started else "has not started"
            raise Refusal("RESET_NEEDED", f"replica {index} {state}: group_reset it first", index)

    def _check_paths(self, env_id: str, options: Mapping[Any, Any]) -> None:
        if not self._settings.allow_paths:
            check_paths(env_id, options)


def _names(options: Mapping[Any, Any], what: str) -> dict[str, Any]:
    if not all(isinstance(name, str) for name in options):
        raise Refusal("VALIDATION_ERROR", f"the keys of {what} must be texts")
    return dict(options)


def _checked(check: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return check(*arguments)
    except (TypeError, ValueError) as error:
        raise Refusal("VALIDATION_ERROR", str(error)) from None
