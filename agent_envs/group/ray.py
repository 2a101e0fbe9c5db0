"""Replicas in Ray actors, one actor per shard: the process backend over a cluster."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Mapping
from typing import Any

from agent_envs.core.errors import MissingExtra, OptionError
from agent_envs.group.process import Process, WorkerDied, without_main
from agent_envs.group.worker import WorkerShard, answer, encode

_POLL = 0.5  # seconds between looks at a silent actor's progress


class Ray(Process):
    """Backend over Ray: a few actors that hold many replicas each, never one actor per replica.

    Joins the cluster that ``ray.init`` was called for, else starts Ray on this machine.

    Args:
        workers: number of actors; default one per core of this machine, at most one per group.
        timeout: seconds that a single replica may take for one call before it is closed.
        start_timeout: seconds that an actor may take to be placed and started.
        actor_options: of every actor, as ``ray.remote`` takes them, such as ``{"num_cpus": 0.5}``.

    Actors that die are replaced and their replicas replayed, as with worker processes; Ray may place the
    new one on another node. Nodes need agent-envs installed.

    Raises:
        MissingExtra: Ray is not installed.
        OptionError: Ray was started here, and its CPUs can never hold all actors. A cluster that was
            joined may grow: there a warning comes, and WorkerDied after ``start_timeout``.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout: float = 60.0,
        start_timeout: float = 120.0,
        actor_options: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("the Ray backend", "ray") from error
        super().__init__(workers, timeout=timeout, start_timeout=start_timeout)
        self._options = dict(actor_options or {})
        self._alone = not ray.is_initialized()  # a cluster of our own: no autoscaler adds to it
        if self._alone:
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)

    def _new_worker(self) -> Any:
        needed = len(set(self._shard_of)) * float(self._options.get("num_cpus", 1))
        if not self._workers and needed > _cpus():
            self._say_too_few(_too_few(needed))
        return _Actor(self._payload, self._timeout, self._start_timeout, self._options, needed)

    def _say_too_few(self, message: str) -> None:
        if self._alone:
            raise OptionError(message)
        warnings.warn(
            f"{message}; waiting up to {self._start_timeout:g} s (start_timeout) for more to join",
            stacklevel=6,
        )


def _cpus() -> float:
    import ray

    return float(ray.cluster_resources().get("CPU", 0.0))


def _too_few(needed: float) -> str:
    return (
        f"Ray has {_cpus():g} CPUs and {needed:g} are needed (workers x num_cpus): give fewer workers, "
        'or actor_options={"num_cpus": ...} below 1'
    )


class _Holder:
    """What an actor runs: a shard, and a look at its progress while it is at work."""

    def __init__(self, payload: bytes) -> None:
        self._at, self._moves = -1, 0
        self._shard = WorkerShard(pickle.loads(payload), self._announce)  # noqa: S301 - from our driver

    def _announce(self, index: int) -> None:
        self._at, self._moves = index, self._moves + 1

    def answer(self, message: bytes) -> bytes:
        self._at = -1
        method, argument = pickle.loads(message)  # noqa: S301 - from our driver
        return answer(self._shard, method, argument)

    def progress(self) -> tuple[int, int]:
        return self._at, self._moves


class _Actor:
    """One actor; what the process backend expects of a worker."""

    def __init__(
        self,
        payload: bytes,
        timeout: float,
        start_timeout: float,
        options: Mapping[str, Any],
        needed: float,
    ) -> None:
        import ray

        self._ray, self._timeout, self._start_timeout = ray, timeout, start_timeout
        self._options = dict(options)
        # two threads, so that progress() answers while a replica is at work
        remote = ray.remote(**{"num_cpus": 1, **options, "max_concurrency": 2})(_Holder)
        with without_main():
            self._actor = remote.remote(payload)
        self._reply: Any = self._actor.progress.remote()
        self._started, self._needed = False, needed

    def send(self, method: str, argument: Any) -> None:
        self._reply = self._actor.answer.remote(encode((method, argument)))

    def receive(self) -> Any:
        """The reply; raises the actor's exception, or :class:`WorkerDied`."""
        errors = self._ray.exceptions
        begun, seen = time.monotonic(), (-1, -1)
        try:
            while not self._ray.wait([self._reply], timeout=_POLL)[0]:
                now = self._progress()
                if now is not None and now != seen:
                    begun, seen = time.monotonic(), now
                limit = self._timeout if self._started else self._start_timeout
                if time.monotonic() - begun > limit:
                    what = "no answer" if self._started else "not placed and started"
                    raise WorkerDied(seen[0], f"{what} within {limit:g} s{self._why()}")
            reply = self._ray.get(self._reply)
        except (errors.RayActorError, errors.ActorUnschedulableError, errors.RayTaskError) as error:
            raise WorkerDied(-1, f"its actor died ({str(error).splitlines()[0]})") from None
        if not self._started:  # the first reply only says that it runs
            self._started = True
            return None
        kind, value = pickle.loads(reply)  # noqa: S301 - from our actor
        if kind == "error":
            raise value
        return value

    def _why(self) -> str:
        """What keeps an actor from being placed: others may hold the CPUs that Ray has."""
        if self._started:
            return ""
        if self._needed > _cpus():
            return f" (start_timeout): {_too_few(self._needed)}"
        free = self._ray.available_resources().get("CPU", 0.0)
        return (
            f" (start_timeout): Ray has {_cpus():g} CPUs, {free:g} free; {self._needed:g} are needed in "
            f"all; actor_options: {self._options}"
        )

    def _progress(self) -> tuple[int, int] | None:
        """The replica at work and a counter that moves; None where the actor does not say in time."""
        if not self._started:
            return None
        try:
            found: tuple[int, int] = self._ray.get(self._actor.progress.remote(), timeout=_POLL)
        except self._ray.exceptions.GetTimeoutError:
            return None
        return found

    def kill(self) -> None:
        if self._ray.is_initialized():  # the cluster may be gone before us
            self._ray.kill(self._actor)

    close = kill
