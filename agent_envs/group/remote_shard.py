"""The replicas behind one connection, and what it takes to bring them back over another.

For each replica the client keeps a state that the server signed and the actions since. When the
connection or the worker behind it dies, any worker of the server restores and replays them, and the
interrupted request is sent once more: a lost reply was never seen, so nothing happens twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_envs.core.errors import AgentEnvError, ServerError, ServerUnreachable
from agent_envs.group.link import Link, LinkLost, MessageTooLarge, NoAnswer, SlowReplica
from agent_envs.group.protocol import Result, failure
from agent_envs.group.wire import SignedState, WireError, unpack_result
from agent_envs.group.worker import same

_TRIES = 2  # of a request for several replicas, before they are asked one by one
_TRIES_ALONE = 3  # then: a worker may have died of something else, even now
_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.5)  # seconds between tries to connect; then the last one again
_FULL = "CAPACITY_REACHED"


@dataclass(frozen=True)
class Request:
    """A request whose frame can be built for any part of the replicas concerned.

    Args:
        kind: type of the frame.
        fields: the frame's fields for some replicas.
        starts: replicas begin anew, so what they were need not come back first.
        actions, states: what the replicas are given, for their journals.
    """

    kind: str
    fields: Callable[[list[int]], dict[str, Any]]
    starts: bool = False
    actions: Mapping[int, str] = field(default_factory=dict)
    states: Mapping[int, SignedState] = field(default_factory=dict)


@dataclass
class Journal:
    """A state (or why there is none), the actions since, and what the replica showed last."""

    state: SignedState | None
    why: str
    last: Any
    actions: list[str] = field(default_factory=list)


Memory = tuple[dict[int, Journal], dict[int, str]]


class RemoteShard:
    """Replicas by index, over one link.

    Args:
        reconnect: seconds for which a lost server is tried again.
        checkpoint: actions after which a state is fetched anew.
    """

    def __init__(self, link: Link, reconnect: float, checkpoint: int) -> None:
        self.link = link
        self._reconnect, self._checkpoint = reconnect, checkpoint
        self._journals: dict[int, Journal] = {}
        self._lost: dict[int, str] = {}

    # -- what is known of each replica ---------------------------------------------------------

    def forget(self, index: int) -> None:
        self._journals.pop(index, None)
        self.pardon(index)

    def pardon(self, index: int) -> None:
        """A lost replica may be asked again: it is about to get a new state."""
        self._lost.pop(index, None)

    def due(self, indices: list[int]) -> bool:
        """Is it time to fetch states?"""
        journals = [self._journals[i] for i in indices if i in self._journals]
        return any(j.state is not None and len(j.actions) + 1 >= self._checkpoint for j in journals)

    def memory(self) -> Memory:
        return dict(self._journals), dict(self._lost)

    def go_back(self, memory: Memory) -> None:
        """Undo what replicas were given since :meth:`memory`."""
        now, (self._journals, self._lost) = self._journals, memory
        changed = [i for i, journal in self._journals.items() if now.get(i) is not journal]
        try:
            self._bring_back(changed)
        except (LinkLost, NoAnswer, SlowReplica):
            self.link.drop()  # the next request brings them back over a new connection

    def _lose(self, indices: Iterable[int], why: str) -> None:
        for index in indices:
            self._journals.pop(index, None)
            self._lost[index] = why

    # -- requests ------------------------------------------------------------------------------

    def send(self, request: Request, part: list[int]) -> bool:
        """Send a request where that can be done at once; :meth:`collect` sees to the rest."""
        asked = self._askable(part)
        if not asked or not self.link.up:
            return False
        try:
            self._send(request, asked)
        except LinkLost:
            return False
        return True

    def collect(self, request: Request, part: list[int], sent: bool) -> dict[int, Any]:
        """An answer for each replica of the part; a failed result where there is none to be had.

        Raises:
            AgentEnvError, ValueError: the server refused the request; nothing was changed.
        """
        answers: dict[int, Any] = {}
        asked = self._askable(part)
        for _ in range(_TRIES):
            if not asked:
                break
            try:
                answers.update(self._ask(request, asked, sent))
                asked = []
            except SlowReplica as slow:
                self._lose([slow.index] if slow.index in asked else asked, str(slow))
            except NoAnswer as silence:
                self._lose(asked, f"{request.kind}: {silence}")
            except MessageTooLarge:
                break
            except LinkLost:
                pass  # asked again, over a new connection
            asked, sent = self._askable(asked), False
        for index in asked:
            answers.update(self._ask_alone(request, index))
        return {i: answers[i] if i in answers else failure(self._lost[i]) for i in part}

    def _ask_alone(self, request: Request, index: int) -> dict[int, Any]:
        """One replica that cannot drag others along (FIELD_CASES F116)."""
        why: Exception | None = None
        for _ in range(_TRIES_ALONE):
            if index in self._lost:
                return {}
            try:
                return self._ask(request, [index], sent=False)
            except LinkLost as error:
                why = error
            except (NoAnswer, SlowReplica) as error:
                why = error
                break
        self._lose([index], f"{request.kind}: {why}")
        return {}

    def _askable(self, part: list[int]) -> list[int]:
        return [index for index in part if index not in self._lost]

    def _ask(self, request: Request, asked: list[int], sent: bool) -> dict[int, Any]:
        if not sent:
            if not self.link.up:
                self._reconnect_all(asked, skip=asked if request.starts else ())
                asked = self._askable(asked)
                if not asked:
                    return {}
            self._send(request, asked)
        return self._read(request, asked, self.link.receive())

    def _send(self, request: Request, asked: list[int]) -> None:
        try:
            self.link.send(request.kind, **request.fields(asked))
        except WireError as error:
            raise ValueError(f"{request.kind}: {error}") from error

    def _read(self, request: Request, asked: list[int], answer: dict[str, Any]) -> dict[int, Any]:
        if request.kind == "get_states":
            return {i: _state(pair) for i, pair in zip(asked, answer["states"], strict=True)}
        if request.kind == "expert_actions":
            actions = zip(asked, answer["actions"], strict=True)
            found = {i: unpack_result(a) if isinstance(a, list) else a for i, a in actions}
            self._lose((i for i, a in found.items() if isinstance(a, Result)), "its expert failed")
            return found
        results = {
            i: unpack_result(fields) for i, fields in zip(asked, answer["results"], strict=True)
        }
        pairs = dict(zip(asked, answer.get("states") or (), strict=False))
        for index, result in results.items():
            self._keep(request, index, result, pairs.get(index))
        return results

    def _keep(self, request: Request, index: int, result: Result, pair: list[Any] | None) -> None:
        """Bring the replica's journal up to date."""
        if result.error is not None:
            self._lose([index], result.error)
        elif pair is not None:
            state = _state(pair)
            known = state if isinstance(state, SignedState) else None
            self._journals[index] = Journal(known, str(pair[1]), result.observation)
        elif index in request.states:
            self._journals[index] = Journal(request.states[index], "", result.observation)
        else:
            journal = self._journals[index]
            journal.actions.append(request.actions[index])
            journal.last = result.observation

    # -- coming back ---------------------------------------------------------------------------

    def _reconnect_all(self, asked: Iterable[int], skip: Iterable[int]) -> None:
        """A new connection with all replicas on it; without one in time, all are lost."""
        deadline = time.monotonic() + self._reconnect
        wanted = [index for index in self._journals if index not in set(skip)]
        pauses = iter(_PAUSES)
        while True:
            time.sleep(min(next(pauses, _PAUSES[-1]), max(deadline - time.monotonic(), 0)))
            try:
                self.link.connect(max(deadline - time.monotonic(), 0.1))
                self._bring_back(wanted)
                return
            except (ServerUnreachable, LinkLost, NoAnswer, SlowReplica) as error:
                why, hopeless = str(error), False
            except AgentEnvError as error:
                why = str(error)
                hopeless = not (isinstance(error, ServerError) and error.code == _FULL)
            self.link.drop()
            if hopeless or time.monotonic() >= deadline:
                self._lose({*wanted, *asked}, f"its connection was lost, and then: {why}")
                return

    def _bring_back(self, indices: Iterable[int]) -> None:
        """Restore and replay replicas; those that cannot be are lost."""
        known = {i: self._journals[i] for i in indices if i in self._journals}
        for index, journal in known.items():
            if journal.state is None:
                self._lose(
                    [index],
                    f"its connection was lost, and its environment saves no states ({journal.why})",
                )
        journals = {i: journal for i, journal in known.items() if journal.state is not None}
        if not journals:
            return
        try:
            shown = self._restore(journals)
        except (AgentEnvError, ValueError) as error:
            self._lose(journals, f"its connection was lost, and then: {error}")
            return
        for index, journal in journals.items():
            if index in shown and not same(shown[index], journal.last):
                self._lose([index], "its replay came out differently; it is not repeatable")

    def _restore(self, journals: Mapping[int, Journal]) -> dict[int, Any]:
        """What each replica shows after its state and its actions, lost ones left out."""
        states = [j.state for j in journals.values() if j.state is not None]
        pairs = [[bytes(state), state.signature] for state in states]
        answer = self.link.ask("set_states", indices=list(journals), states=pairs)
        shown = {i: fields[0] for i, fields in zip(journals, answer["results"], strict=True)}
        for turn in range(max(len(journal.actions) for journal in journals.values())):
            going = [i for i in shown if len(journals[i].actions) > turn]
            actions = [journals[i].actions[turn] for i in going]
            answer = self.link.ask("group_step", indices=going, actions=actions)
            for index, fields in zip(going, answer["results"], strict=True):
                result = unpack_result(fields)
                shown[index] = result.observation
                if result.error is not None:
                    self._lose([index], f"replay after a lost connection: {result.error}")
                    del shown[index]
        return shown


def _state(pair: list[Any]) -> SignedState | RuntimeError:
    state, signature = pair
    return RuntimeError(signature) if state is None else SignedState(state, signature)
