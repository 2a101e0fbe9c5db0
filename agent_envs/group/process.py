"""Replicas in worker processes, whole shards per message.

One worker holds a contiguous shard of replicas. The parent keeps a short journal of each (how it
was started, actions since), so when a replica hangs or kills its worker, only that replica is
closed: the worker is restarted and its other replicas are brought back by replaying their journals.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import cloudpickle

from agent_envs.core.errors import OptionError, positive, seconds
from agent_envs.group.protocol import Definition, ResetRequest, Result, failure
from agent_envs.group.worker import Journal, encode, worker_main

_POLL = 0.2  # seconds between looks at a silent worker's progress
_main_lock = threading.Lock()


class WorkerDied(RuntimeError):
    """A worker hung or died while ``index`` was at work (-1: before any replica)."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


@contextmanager
def without_main() -> Iterator[None]:
    """Keep spawned workers from running the user's script again: definitions travel by value."""
    with _main_lock:
        main = sys.modules["__main__"]
        stand_in = ModuleType("__main__")
        stand_in.__spec__ = None
        sys.modules["__main__"] = stand_in
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _stop(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join(5)


class _Worker:
    """One process and its pipe."""

    def __init__(self, payload: bytes, timeout: float, start_timeout: float) -> None:
        import multiprocess

        context = multiprocess.get_context("spawn")
        self._timeout, self._start_timeout = timeout, start_timeout
        self._progress = context.RawArray("q", [-1, 0])
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(
            target=worker_main, args=(far_end, payload, self._progress), daemon=True
        )
        with without_main():
            self.process.start()
        far_end.close()
        self._kill = weakref.finalize(self, _stop, [self.process])

    def send(self, method: str, argument: Any) -> None:
        self._progress[0] = -1
        with suppress(OSError):  # a broken pipe: receive() finds out and says so
            self.pipe.send_bytes(encode((method, argument)))

    def receive(self) -> Any:
        """The reply; raises the worker's exception, or :class:`WorkerDied`."""
        moved, seen = time.monotonic(), self._progress[1]
        try:
            while not self.pipe.poll(_POLL):
                if self._progress[1] != seen:
                    moved, seen = time.monotonic(), self._progress[1]
                limit = self._timeout if seen else self._start_timeout
                if time.monotonic() - moved > limit:
                    raise WorkerDied(self._progress[0], f"no answer within {limit:g} s")
            kind, value = pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from our worker
        except (EOFError, ConnectionResetError, OSError):
            self.process.join(5)
            code = self.process.exitcode
            raise WorkerDied(
                self._progress[0], f"its worker process died (exit code {code})"
            ) from None
        if kind == "error":
            raise value
        return value

    def kill(self) -> None:
        self._kill()
        self.pipe.close()

    def close(self) -> None:
        with suppress(OSError):
            self.pipe.send_bytes(encode(("close", None)))
            self.process.join(1)
        self.kill()


class Process:
    """Backend over worker processes (``multiprocess``, spawn).

    Args:
        workers: number of processes; default one per core, at most one per group.
        timeout: seconds that a single replica may take for one call before it is closed.
        start_timeout: seconds that a worker may take to start.

    Environments defined in a script or notebook work: classes of ``__main__`` travel by value and
    the script is not run again.
    """

    def __init__(
        self, workers: int | None = None, *, timeout: float = 60.0, start_timeout: float = 120.0
    ) -> None:
        self._wanted = None if workers is None else positive("workers", workers)
        self._timeout = seconds("timeout", timeout)
        self._start_timeout = seconds("start_timeout", start_timeout)
        self._workers: dict[int, _Worker] = {}
        self._payload = b""
        self._shard_of: list[int] = []
        self._journals: dict[int, Journal] = {}
        self._last: dict[int, Any] = {}  # what each replica showed last, to check a replay
        self._lost: dict[int, str] = {}

    # -- the backend protocol ----------------------------------------------------------------

    def start(self, definition: Definition, num_envs: int, group_size: int) -> None:
        if self._payload:
            raise OptionError("this Process backend serves another group: make one for each")
        # cloudpickle (which Gymnasium brings) sends classes of __main__ by value; dill, which
        # multiprocess brings, loses the class cell that super() needs
        self._payload = cloudpickle.dumps(_by_value(definition))
        groups = num_envs // group_size
        count = min(self._wanted or os.cpu_count() or 1, num_envs if self._wanted else groups)
        size = -(-num_envs // count)
        self._shard_of = [index // size for index in range(num_envs)]
        try:
            self._workers = {number: self._new_worker() for number in sorted(set(self._shard_of))}
            for worker in self._workers.values():
                worker.receive()
        except BaseException:
            self.close()
            raise

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        for index in requests:
            self._journals.pop(index, None)
            self._lost.pop(index, None)
        return self._run("reset", requests, lambda index: (requests[index], []))

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        def after(index: int) -> Journal:
            start, past = self._journals[index]
            past.append(actions[index])
            return start, past

        return self._run("step", actions, after)

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        # a bad state must change nothing, on any worker: ask for the old ones first
        before = {
            index: state
            for index, state in self.get_states(self._journals.keys() & states.keys()).items()
            if isinstance(state, bytes)
        }
        lost = {index: self._lost.pop(index) for index in states if index in self._lost}
        try:
            return self._run("set_states", states, lambda index: (states[index], []))
        except Exception:
            self._run("set_states", before, lambda index: (before[index], []))
            self._lost.update(lost)
            raise

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        found: dict[int, Any] = self._run("get_states", dict.fromkeys(indices))
        return {i: RuntimeError(s.error) if isinstance(s, Result) else s for i, s in found.items()}

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        return self._run("expert_actions", dict.fromkeys(indices))

    def close(self) -> None:
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.close()

    # -- workers -----------------------------------------------------------------------------

    def _new_worker(self) -> _Worker:
        return _Worker(self._payload, self._timeout, self._start_timeout)

    def _run(
        self,
        method: str,
        arguments: Mapping[int, Any],
        journal: Callable[[int], Journal] | None = None,
    ) -> dict[int, Any]:
        """Ask all workers concerned at once; collect, bring back what fell over, keep journals."""
        replies: dict[int, Any] = {i: failure(self._lost[i]) for i in arguments if i in self._lost}
        parts: dict[int, dict[int, Any]] = {}
        for index, argument in arguments.items():
            if index not in replies:
                parts.setdefault(self._shard_of[index], {})[index] = argument
        errors: list[Exception] = []
        try:
            for number, part in parts.items():
                self._send(number, method, part)
            for number, part in parts.items():
                try:
                    replies.update(self._collect(number, method, part))
                except WorkerDied:
                    raise
                except Exception as error:  # raised inside a worker: it is the caller's to see
                    errors.append(error)
        except BaseException:  # Ctrl-C in between: replies would be out of step from here on
            self._abandon()
            raise
        if errors:
            raise errors[0]
        self._keep(replies, journal)
        return {index: replies[index] for index in arguments}

    def _keep(self, replies: Mapping[int, Any], journal: Callable[[int], Journal] | None) -> None:
        for index, reply in replies.items():
            if isinstance(reply, Result) and reply.error is not None:
                self._journals.pop(index, None)
                self._lost.setdefault(index, reply.error)
            elif journal is not None:
                self._journals[index] = journal(index)
                self._last[index] = reply.observation

    def _send(self, number: int, method: str, part: Mapping[int, Any]) -> None:
        if number not in self._workers:
            self._workers[number] = self._new_worker()
            self._workers[number].receive()
        self._workers[number].send(method, _argument(method, part))

    def _collect(self, number: int, method: str, part: dict[int, Any]) -> dict[int, Any]:
        """One worker's replies; a replica that hangs or kills it is closed, the others go on."""
        replies: dict[int, Any] = {}
        idle_deaths = 0
        while part:
            try:
                replies.update(self._workers[number].receive())
                break
            except WorkerDied as death:
                blamed = [death.index] if death.index in part else list(part)
                if death.index < 0 and not idle_deaths:
                    blamed, idle_deaths = [], 1  # killed while idle: nobody's fault, ask again
                elif death.index < 0 and len(part) > 1:
                    replies.update(self._collect_alone(number, method, part))
                    break
                for index in blamed:
                    part.pop(index)
                    replies[index] = failure(f"{method}: {death}")
                    self._lost[index] = f"{method}: {death}"
                    self._journals.pop(index, None)
                self._revive(number, without=part if method == "reset" else ())
                # those that were lost in the revival have their reply now
                for index in [i for i in part if i in self._lost]:
                    part.pop(index)
                    replies[index] = failure(self._lost[index])
                if part:
                    self._workers[number].send(method, _argument(method, part))
        return replies

    def _collect_alone(self, number: int, method: str, part: dict[int, Any]) -> dict[int, Any]:
        """Replies of replicas one by one: nobody knows which of them kills their worker."""
        replies: dict[int, Any] = {}
        self._revive(number, without=part if method == "reset" else ())
        for index, argument in part.items():
            if index in self._lost:
                replies[index] = failure(self._lost[index])
                continue
            self._send(number, method, {index: argument})
            replies.update(self._collect(number, method, {index: argument}))
        return replies

    def _revive(self, number: int, without: Iterable[int]) -> None:
        """A new worker for a shard, its replicas replayed; those that cannot be are lost."""
        skip = set(without)
        while True:
            self._workers[number].kill()
            self._workers[number] = worker = self._new_worker()
            worker.receive()
            journals = {
                index: (*journal, self._last[index])
                for index, journal in self._journals.items()
                if self._shard_of[index] == number and index not in skip
            }
            worker.send("replay", journals)
            try:
                outcome = worker.receive()
            except WorkerDied as death:
                for index in [death.index] if death.index in journals else list(journals):
                    self._lose(index, f"replay after a crash: {death}")
                continue
            for index, error in outcome.items():
                if error is not None:
                    self._lose(index, f"replay after a crash: {error}")
            return

    def _lose(self, index: int, reason: str) -> None:
        self._journals.pop(index, None)
        self._lost[index] = reason

    def _abandon(self) -> None:
        """Kill all workers; every replica needs a reset, which starts workers anew."""
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()
        for index in range(len(self._shard_of)):
            self._lose(index, "interrupted; reset to go on")


def _argument(method: str, part: Mapping[int, Any]) -> Any:
    return list(part) if method in ("get_states", "expert_actions") else dict(part)


def _by_value(definition: Definition) -> Definition:
    """Entry points of the running script become the class itself, which workers can be sent."""
    spec = definition.spec
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
        creator = getattr(sys.modules["__main__"], spec.entry_point.partition(":")[2])
        return replace(definition, spec=replace(spec, entry_point=creator))
    return definition
