"""The far side of the process backend: a shard that answers messages until its pipe closes."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from agent_envs.group.protocol import ResetRequest, Result, failure
from agent_envs.group.shard import Shard

Journal = tuple[ResetRequest | bytes, list[str]]
"""How a replica got where it is: a reset or a state, then actions."""


class WorkerShard(Shard):
    """A shard that can also bring replicas back after a restart."""

    def replay(
        self, journals: Mapping[int, tuple[ResetRequest | bytes, list[str], Any]]
    ) -> dict[int, str | None]:
        """Play journals again up to their last observation.

        Answers an error text for each that could not be, or that came out differently.
        """
        outcome: dict[int, str | None] = {}
        for index, (start, actions, last) in journals.items():
            try:
                observation = self._replay_one(index, start, actions)
                if not same(observation, last):
                    raise RuntimeError("it came out differently; the environment is not repeatable")
                outcome[index] = None
            except (Exception, SystemExit) as error:
                self._drop(index)
                outcome[index] = f"{type(error).__name__}: {error}"
        return outcome

    def _replay_one(self, index: int, start: ResetRequest | bytes, actions: list[str]) -> Any:
        self._announce(index)
        env = self._env(index)
        if isinstance(start, bytes):
            observation, _ = env.set_state(start)
        else:
            observation, _ = env.reset(seed=start.seed, options=dict(start.options))
        for action in actions:
            self._announce(index)  # the time limit is for one call, not for the whole journal
            observation = env.step(action)[0]
        return observation


def same(a: Any, b: Any) -> bool:
    """Are two observations equal: texts, arrays, or dicts of them."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def encode(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def encode_reply(reply: Any) -> bytes:
    """A reply as bytes; what does not pickle closes its own replica only."""
    try:
        return encode(("ok", reply))
    except Exception:
        return encode(("ok", {index: _portable(value) for index, value in reply.items()}))


def _portable(value: Any) -> Any:
    try:
        encode(value)
    except Exception as error:
        if isinstance(value, Result):
            return failure(f"cannot leave its process: {type(error).__name__}: {error}")
        return RuntimeError(f"{type(value).__name__}: {value}")
    return value


def worker_main(pipe: Any, payload: bytes, progress: Any) -> None:
    """Serve ``(method, argument)`` messages.

    Args:
        pipe: duplex connection to the parent.
        payload: the pickled :class:`Definition`.
        progress: shared pair of ints: index of the replica at work, and a counter that moves.
    """
    # Ctrl-C goes to the whole process group; the parent decides and closes the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def announce(index: int) -> None:
        progress[0] = index
        progress[1] += 1

    try:
        shard = WorkerShard(pickle.loads(payload), announce)  # noqa: S301 - from our parent
        pipe.send_bytes(encode(("ok", None)))
    except Exception:
        pipe.send_bytes(encode(("error", RuntimeError(traceback.format_exc()))))
        return
    try:
        while True:
            method, argument = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from our parent
            if method == "close":
                break
            pipe.send_bytes(answer(shard, method, argument))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        shard.close()


def answer(shard: WorkerShard, method: str, argument: Any) -> bytes:
    try:
        return encode_reply(getattr(shard, method)(argument))
    except Exception as error:
        try:
            return encode(("error", error))
        except Exception:
            return encode(("error", RuntimeError(f"{type(error).__name__}: {error}")))
