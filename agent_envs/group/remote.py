"""Replicas on env servers: the same results as local ones, also over connections that break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_envs.core.errors import AgentEnvError, OptionError, StateError, positive, seconds
from agent_envs.group.link import Link, socket_url
from agent_envs.group.protocol import Definition, ResetRequest, Result
from agent_envs.group.remote_shard import RemoteShard, Request
from agent_envs.group.wire import SignedState


class Remote:
    """Backend over env servers (``agent-envs serve``).

    Args:
        url: a server, or several; each gets a share of the groups. A URL may be named repeatedly:
            each mention is a connection, and so a worker of that server.
        token: what the servers demand.
        timeout: seconds for one request, on the client's own clock; then its replicas are closed.
        reconnect: seconds for which a lost server is tried again before its replicas are closed.
        checkpoint: steps after which a replica's state is fetched anew; after a lost connection at
            most so many actions are replayed.

    Raises:
        OptionError: a URL, token or number cannot be used.

    The group's start raises :class:`~agent_envs.core.errors.ServerUnreachable` where nothing answers.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | None = None,
        timeout: float = 120.0,
        reconnect: float = 30.0,
        checkpoint: int = 16,
    ) -> None:
        self._urls = list(url) if isinstance(url, Iterable) and not isinstance(url, str) else [url]
        if not self._urls:
            raise OptionError("Remote needs the URL of a server, such as http://127.0.0.1:8000")
        for one in self._urls:
            socket_url(one)
        if not (
            token is None or (isinstance(token, str) and token.isascii() and token.isprintable())
        ):
            raise OptionError(  # the value itself stays out of logs
                "the token must be printable ASCII text: read from a file it may end in a line break"
            )
        self._token, self._timeout = token, seconds("timeout", timeout)
        self._reconnect = seconds("reconnect", reconnect)
        self._checkpoint = positive("checkpoint", checkpoint)
        self._shards: list[RemoteShard] = []
        self._shard_of: list[int] = []

    # -- the backend protocol ----------------------------------------------------------------

    def start(self, definition: Definition, num_envs: int, group_size: int) -> None:
        if self._shard_of:
            raise OptionError("this Remote backend serves another group: make one for each")
        groups = num_envs // group_size
        urls = self._urls[:groups]
        self._shard_of = [i // group_size * len(urls) // groups for i in range(num_envs)]
        opening = {
            "env": definition.spec.id,
            "options": {**definition.spec.kwargs, **definition.options},
            "num_envs": num_envs,
        }
        self._shards = [
            RemoteShard(
                Link(url, self._token, opening, self._timeout), self._reconnect, self._checkpoint
            )
            for url in urls
        ]
        try:
            for shard in self._shards:
                shard.link.connect(self._reconnect)
        except BaseException:
            self.close()
            raise

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        def fields(indices: list[int]) -> dict[str, Any]:
            starts: dict[int, dict[str, Any]] = {}  # by identity: a group's replicas share theirs
            for index in indices:
                request = requests[index]
                start = {"seed": request.seed, "options": dict(request.options)}
                starts.setdefault(id(request), {**start, "indices": []})["indices"].append(index)
            return {"starts": list(starts.values()), "states": True}

        for index in requests:
            self._shard(index).forget(index)
        return self._run(Request("group_reset", fields, starts=True), requests)

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        def fields(indices: list[int]) -> dict[str, Any]:
            wanted = self._shard(indices[0]).due(indices)
            return {"indices": indices, "actions": [actions[i] for i in indices], "states": wanted}

        return self._run(Request("group_step", fields, actions=actions), actions)

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        found = self._run(Request("get_states", _indices), indices)
        return {i: RuntimeError(s.error) if isinstance(s, Result) else s for i, s in found.items()}

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        signed = {index: _signed(index, state) for index, state in states.items()}

        def fields(indices: list[int]) -> dict[str, Any]:
            pairs = [[bytes(signed[i]), signed[i].signature] for i in indices]
            return {"indices": indices, "states": pairs}

        before = [shard.memory() for shard in self._shards]
        for index in states:
            self._shard(index).pardon(index)
        try:
            return self._run(Request("set_states", fields, starts=True, states=signed), states)
        except Exception:  # all or nothing, on every server
            for shard, memory in zip(self._shards, before, strict=True):
                shard.go_back(memory)
            raise

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        return self._run(Request("expert_actions", _indices), indices)

    def close(self) -> None:
        for shard in self._shards:
            shard.link.close()

    # -- inside ------------------------------------------------------------------------------

    def _shard(self, index: int) -> RemoteShard:
        return self._shards[self._shard_of[index]]

    def _run(self, request: Request, indices: Iterable[int]) -> dict[int, Any]:
        """Ask all servers concerned at once, then collect."""
        indices = list(indices)
        parts: dict[int, list[int]] = {}
        for index in indices:
            parts.setdefault(self._shard_of[index], []).append(index)
        replies: dict[int, Any] = {}
        errors: list[Exception] = []
        try:
            sent = {
                number: self._shards[number].send(request, part) for number, part in parts.items()
            }
            for number, part in parts.items():
                try:
                    replies.update(self._shards[number].collect(request, part, sent[number]))
                except (
                    AgentEnvError,
                    ValueError,
                ) as error:  # the others' answers wait all the same
                    errors.append(error)
        except BaseException:  # Ctrl-C in between: answers would be out of step from here on
            for shard in self._shards:
                shard.link.drop()
            raise
        if errors:
            raise errors[0]
        return {index: replies[index] for index in indices}


def _indices(indices: list[int]) -> dict[str, Any]:
    return {"indices": indices}


def _signed(index: int, state: bytes) -> SignedState:
    if not isinstance(state, SignedState):
        raise StateError(
            f"the state for replica {index} bears no server's signature: give one that get_states() "
            "of a remote group returned (or a copy or pickle of it)"
        )
    return state
