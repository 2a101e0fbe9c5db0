"""A handful of replicas in one process: what inline is, and what each worker holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.envs.registration import load_env_creator

from agent_envs.core.batch import BatchEnv
from agent_envs.core.env import AgentEnv, Obs
from agent_envs.core.errors import OptionError
from agent_envs.group.protocol import Definition, ResetRequest, Result, failure


def make_env(definition: Definition) -> AgentEnv:
    """One bare environment of the definition, without Gymnasium's wrappers."""
    spec = definition.spec
    creator: Any = spec.entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    env = creator(**{**spec.kwargs, **definition.options})
    if not isinstance(env, AgentEnv):
        raise OptionError(f"{spec.id} makes a {type(env).__name__}, which is no AgentEnv")
    env.spec = spec
    return env


def owned(observation: Obs) -> Obs:
    """The observation, copied where the environment could change it later (FIELD_CASES F082)."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, np.ndarray):
        return observation.copy() if observation.flags.writeable else observation
    if isinstance(observation, dict):
        return {key: owned(value) for key, value in observation.items()}
    return deepcopy(observation)


class Shard:
    """Replicas by index, made when first needed. A replica that raises is closed, never the shard.

    Args:
        announce: called with a replica's index before anything of its own runs, so that an
            observer outside can tell which replica hangs or killed the process.
    """

    def __init__(
        self, definition: Definition, announce: Callable[[int], None] = lambda index: None
    ) -> None:
        self.definition = definition
        self.envs: dict[int, AgentEnv] = {}
        self._announce = announce

    def _env(self, index: int) -> AgentEnv:
        env = self.envs.get(index)
        if env is None:
            env = self.envs[index] = make_env(self.definition)
        return env

    def _drop(self, index: int) -> None:
        """Forget a replica whose state nobody can vouch for; the next reset makes a new one."""
        env = self.envs.pop(index, None)
        if env is not None:
            with suppress(Exception):  # it is broken already, and its error is reported
                env.close()

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        results = {}
        for index, request in requests.items():
            self._announce(index)
            try:
                env = self._env(index)
                observation, info = env.reset(seed=request.seed, options=dict(request.options))
                results[index] = Result(owned(observation), info)
            except (Exception, SystemExit) as error:
                self._drop(index)
                results[index] = failure(error)
        return results

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        self._prepare(actions)
        results = {}
        for index, action in actions.items():
            self._announce(index)
            try:
                observation, reward, terminated, truncated, info = self.envs[index].step(action)
                results[index] = Result(owned(observation), info, reward, terminated, truncated)
            except (Exception, SystemExit) as error:
                self._drop(index)
                results[index] = failure(error)
        return results

    def _prepare(self, actions: Mapping[int, str]) -> None:
        prepare = next((type(env).prepare for env in self.envs.values()), AgentEnv.prepare)
        if prepare is AgentEnv.prepare:
            return
        ready = [index for index in actions if index in self.envs]
        if ready:
            self._announce(ready[0])
            with suppress(Exception):  # whatever it is, each replica meets it again in its own step
                prepare([self.envs[i] for i in ready], [actions[i] for i in ready])

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        states: dict[int, bytes | BaseException] = {}
        for index in indices:
            self._announce(index)
            try:
                states[index] = self._env(index).get_state()
            except Exception as error:
                states[index] = error
        return states

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        """All or nothing: on the first bad state the replicas done so far are put back."""
        results: dict[int, Result] = {}
        undo: dict[int, bytes] = {}
        try:
            for index, state in states.items():
                self._announce(index)
                env = self._env(index)
                if env.started:
                    undo[index] = env.get_state()
                observation, info = env.set_state(state)
                results[index] = Result(
                    owned(observation), info, 0.0, env.terminated, env.truncated
                )
        except Exception:
            for index, state in undo.items():
                self.envs[index].set_state(state)
            raise
        return results

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        actions: dict[int, str | Result | None] = {}
        for index in indices:
            self._announce(index)
            try:
                env = self._env(index)
                actions[index] = env.expert_action() if env.started else None
            except (Exception, SystemExit) as error:
                self._drop(index)
                actions[index] = failure(error)
        return actions

    def close(self) -> None:
        for index in list(self.envs):
            self._drop(index)


class BatchShard:
    """Replicas as rows of a :class:`BatchEnv`; starts, states and experts go through one env."""

    def __init__(self, env: AgentEnv, batch: BatchEnv) -> None:
        self._env, self.batch = env, batch

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        """Rows with the same request (a group) are started once and copied."""
        results: dict[int, Result] = {}
        started: dict[int, Result] = {}
        for index, request in requests.items():
            result = started.get(id(request))
            if result is None:
                result = started[id(request)] = self._start(request)
            results[index] = result
            if result.error is None:
                self.batch.load(index, self._env)
            else:
                self.batch.clear(index)
        return results

    def _start(self, request: ResetRequest) -> Result:
        try:
            observation, info = self._env.reset(seed=request.seed, options=dict(request.options))
        except Exception as error:
            return failure(error)
        return Result(observation, info)

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        raise NotImplementedError("the group env steps the batch itself")

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        states: dict[int, bytes | BaseException] = {}
        for index in indices:
            try:
                self.batch.store(index, self._env)
                states[index] = self._env.get_state()
            except Exception as error:
                states[index] = error
        return states

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        """All or nothing: states are tried before any row changes."""
        for state in dict.fromkeys(states.values()):
            self._env.set_state(state)
        results: dict[int, Result] = {}
        for index, state in states.items():
            observation, info = self._env.set_state(state)
            self.batch.load(index, self._env)
            results[index] = Result(
                observation, info, 0.0, self._env.terminated, self._env.truncated
            )
        return results

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        actions: dict[int, str | Result | None] = {}
        for index in indices:
            try:
                self.batch.store(index, self._env)
                actions[index] = self._env.expert_action() if self._env.started else None
                if self._env.started:
                    self.batch.load(index, self._env)  # an expert may have made a plan
            except Exception as error:
                actions[index] = failure(error)
        return actions

    def close(self) -> None:
        self._env.close()


class Inline:
    """The default backend: all replicas in this process, by arrays where the env offers that."""

    batch: BatchEnv | None = None

    def start(self, definition: Definition, num_envs: int, group_size: int) -> None:
        env = make_env(definition)
        self.batch = env.make_batch(num_envs)
        self.shard: Shard | BatchShard = (
            Shard(definition) if self.batch is None else BatchShard(env, self.batch)
        )

    def reset(self, requests: Mapping[int, ResetRequest]) -> dict[int, Result]:
        return self.shard.reset(requests)

    def step(self, actions: Mapping[int, str]) -> dict[int, Result]:
        return self.shard.step(actions)

    def get_states(self, indices: Iterable[int]) -> dict[int, bytes | BaseException]:
        return self.shard.get_states(indices)

    def set_states(self, states: Mapping[int, bytes]) -> dict[int, Result]:
        return self.shard.set_states(states)

    def expert_actions(self, indices: Iterable[int]) -> dict[int, str | Result | None]:
        return self.shard.expert_actions(indices)

    def close(self) -> None:
        self.shard.close()
