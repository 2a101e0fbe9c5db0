"""The group environment: G groups x N replicas that share one initial state per group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError
from gymnasium.spaces import Tuple
from gymnasium.vector import AutoresetMode, VectorEnv

from agent_envs.core.batch import BatchEnv
from agent_envs.core.env import Obs
from agent_envs.core.errors import OptionError, StateNotPortable, positive
from agent_envs.core.profile import Profile
from agent_envs.core.seeding import check_seed, fresh_seed, keyed_seed
from agent_envs.core.spaces import check_text
from agent_envs.core.tasks import TaskSet
from agent_envs.group.board import BatchBoard, Board
from agent_envs.group.protocol import Backend, Definition, ResetRequest, Result
from agent_envs.group.shard import Inline, make_env


def _process() -> Backend:
    from agent_envs.group.process import Process

    return Process()


def _ray() -> Backend:
    from agent_envs.group.ray import Ray

    return Ray()


def _servers(urls: str) -> Backend:
    from agent_envs.group.remote import Remote

    return Remote(urls.split(","), token=os.environ.get("AGENT_ENVS_SERVER_TOKEN"))


BACKENDS: dict[str, Callable[[], Backend]] = {"inline": Inline, "process": _process, "ray": _ray}


def _named(backend: str) -> Backend:
    if "://" in backend:
        return _servers(backend)
    if backend not in BACKENDS:
        raise OptionError(
            f"unknown backend {backend!r}; valid: {', '.join(BACKENDS)}, the URL of an env server, "
            "or a backend object"
        )
    return BACKENDS[backend]()


class GroupVectorEnv(VectorEnv[Any, Any, Any]):
    """Replicas in groups, behind Gymnasium's vector interface.

    Replica ``i`` belongs to group ``i // group_size``. All replicas of a group start from the same
    state; a finished replica never steps again until its group is reset (``AutoresetMode.DISABLED``).
    A replica that fails is closed as truncated with ``infos["error"]``; the others go on.

    Args:
        spec: the environment's spec.
        num_groups: number of groups G.
        group_size: replicas per group N; ``num_envs`` is ``G * N``.
        backend: a name from ``BACKENDS``, a backend object, or env servers by URL (several separated by
            commas; with ``$AGENT_ENVS_SERVER_TOKEN`` as token where it is set).
        options: the environment's own options.

    Attributes:
        group_seeds: seed of each group's current episode; with the same ``task_index`` it
            reproduces the group's start in a single environment.
        terminated, truncated: flags of all replicas, shape (num_envs,), bool.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_groups: int = 1,
        group_size: int = 1,
        *,
        backend: str | Backend = "inline",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        num_groups = positive("num_groups", num_groups)
        group_size = positive("group_size", group_size)
        if isinstance(backend, str):
            backend = _named(backend)
        if isinstance(backend, type) or not hasattr(backend, "start"):
            raise OptionError(
                f"unknown backend {backend!r}: give a name, or an object such as agent_envs.Process(2)"
            )
        self.definition = Definition(spec, dict(options or {}))
        self.spec, self.num_groups, self.group_size = spec, num_groups, group_size
        self.num_envs = num_groups * group_size
        probe = make_env(self.definition)  # raises here, not in a worker, on wrong options
        self.profile: Profile = probe.profile
        self.tasks: TaskSet = probe.tasks
        self.split = probe.split
        self._start_options = ("task_index", *probe.start_options)
        self.single_observation_space = probe.observation_space
        self.single_action_space = probe.action_space
        self.observation_space = Tuple(
            deepcopy(probe.observation_space) for _ in range(self.num_envs)
        )
        self.action_space = Tuple(deepcopy(probe.action_space) for _ in range(self.num_envs))
        self.metadata = {**probe.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.render_mode = probe.render_mode
        probe.close()
        # what the seeds of a group's episodes are keyed by: (seed, group), or (its own seed,)
        self._roots: list[tuple[int, ...] | None] = [None] * num_groups
        self._episodes = [0] * num_groups
        self.group_seeds: list[int] = [0] * num_groups
        self.task_indices: list[int | None] = [None] * num_groups
        self.backend: Backend = backend
        backend.start(self.definition, self.num_envs, group_size)
        self._batch: BatchEnv | None = getattr(backend, "batch", None)
        self._board = (
            Board(self.num_envs, self.single_observation_space)
            if self._batch is None
            else BatchBoard(self._batch, self.single_observation_space)
        )

    # -- Gymnasium ---------------------------------------------------------------------------

    @property
    def terminated(self) -> np.ndarray:
        """Flags of all replicas, shape (num_envs,), bool."""
        return self._board.terminated

    @property
    def truncated(self) -> np.ndarray:
        """Flags of all replicas, shape (num_envs,), bool; errors and "never reset" included."""
        return self._board.truncated

    @property
    def active(self) -> np.ndarray:
        """Which replicas can step, shape (num_envs,), bool."""
        active: np.ndarray = ~(self.terminated | self.truncated)
        return active

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        """Start new episodes in all groups, or in those that ``options["reset_mask"]`` selects.

        Args:
            seed: an int is expanded to one seed per group and episode; a list holds the group
                seeds themselves; None goes on with the sequence that the last seed began.
            options: ``task_index`` (one per group, None allowed), ``reset_mask`` (bool per
                replica, whole groups), and the environment's own start options for all groups.
        """
        self._check_open()
        groups, indices, shared = self._read_options(options)
        self._seed_groups(seed, groups)
        requests = {}
        for g in groups:
            self.task_indices[g] = indices[g]
            start = shared if indices[g] is None else {**shared, "task_index": indices[g]}
            request = ResetRequest(self.group_seeds[g], start)
            for i in range(g * self.group_size, (g + 1) * self.group_size):
                requests[i] = request
        self._board.take(self.backend.reset(requests), fresh=True)
        return self._board.observations(), self._board.infos(requests)

    def step(
        self, actions: Sequence[str | None]
    ) -> tuple[tuple[Obs, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One action per replica; None leaves it alone, finished replicas never step.

        Returns:
            observations, rewards (num_envs,) float64, terminated and truncated (num_envs,) bool,
            infos. Idle replicas repeat their last observation and info with reward 0.

        Raises:
            ValueError: wrong number of actions, or an action that is no text; nothing is stepped.
        """
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} actions, got {_length(actions)}")
        self._check_open()
        rewards = np.zeros(self.num_envs, np.float64)
        touched: Iterable[int] = ()
        given = {i: action for i, action in enumerate(actions) if action is not None}
        if self._batch is not None:
            chosen = self._chosen(given)
            rewards[list(chosen)] = self._batch.step(list(chosen), list(chosen.values()))
        else:
            touched = results = self.advance(given)
            for i, result in results.items():
                rewards[i] = result.reward
        return (
            self._board.observations(), rewards, self._board.terminated.copy(), self._board.truncated.copy(),
            self._board.infos(touched),
        )  # fmt: skip

    def advance(self, actions: Mapping[int, str]) -> dict[int, Result]:
        """:meth:`step` by replica index, without building arrays; finished replicas are left out.

        Raises:
            ValueError: an action is no text; nothing is stepped.
        """
        self._check_open()
        chosen = self._chosen(actions)
        if self._batch is not None:
            rewards = self._batch.step(list(chosen), list(chosen.values())).tolist()
            results = {i: self._board.result(i) for i in chosen}
            for result, reward in zip(results.values(), rewards, strict=True):
                result.reward = reward
            return results
        results = self.backend.step(chosen)
        self._board.take(results)
        return results

    def result(self, index: int) -> Result:
        """Where replica ``index`` stands: its last observation, info and flags (read-only)."""
        return self._board.result(index)

    def close_extras(self, **kwargs: Any) -> None:
        # __del__ also comes here for a group whose constructor raised before it had a backend
        backend: Backend | None = self.__dict__.get("backend")
        if backend is not None:
            backend.close()

    def _chosen(self, actions: Mapping[int, str]) -> dict[int, str]:
        """The actions of replicas that can step; ValueError where one is no text."""
        for i, action in actions.items():
            check_text(action, f"action {i}")
        over = self._board.over
        return {i: action for i, action in actions.items() if not over[i]}

    # -- states and experts ------------------------------------------------------------------

    def get_states(self) -> tuple[bytes, ...]:
        """The states of all replicas.

        Raises:
            StateNotPortable: the environment cannot save states, or a replica is closed.
        """
        self._check_open()
        states = self.backend.get_states(range(self.num_envs))
        for i, state in states.items():
            if not isinstance(state, bytes):
                raise StateNotPortable(f"replica {i} has no state: {state}") from state
        return tuple(state for _, state in sorted(states.items()) if isinstance(state, bytes))

    def set_states(self, states: Sequence[bytes | None]) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        """Continue from states (None leaves a replica alone); returns what ``reset`` returns.

        Raises:
            StateError: a state cannot be restored; no replica is changed.
        """
        self._check_open()
        if len(states) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} states, got {len(states)}")
        return self._restore({i: s for i, s in enumerate(states) if s is not None})

    def fork(self, source: int, targets: Iterable[int]) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        """Copy the state of replica ``source`` to ``targets`` of the same group."""
        self._check_open()
        targets = list(targets)
        for i in (source, *targets):
            self._check_index(i)
            if i // self.group_size != source // self.group_size:
                raise ValueError(f"replica {i} is not in the group of replica {source}")
        (state,) = self.backend.get_states([source]).values()
        if not isinstance(state, bytes):
            raise StateNotPortable(f"replica {source} has no state: {state}") from state
        return self._restore(dict.fromkeys(targets, state))

    def expert_actions(self, indices: Iterable[int] | None = None) -> dict[int, str | None]:
        """The scripted expert's actions for active replicas (None where it has none).

        A replica whose expert fails is closed as truncated, and its action is None.
        """
        self._check_open()
        asked = np.flatnonzero(self.active).tolist() if indices is None else list(indices)
        for i in asked:
            self._check_index(i)
        found = self.backend.expert_actions(asked)
        failed = {i: action for i, action in found.items() if isinstance(action, Result)}
        self._board.take(failed)
        return {i: None if isinstance(a, Result) else a for i, a in found.items()}

    def _check_index(self, i: int) -> None:
        if not 0 <= i < self.num_envs:
            raise IndexError(f"replica {i} is outside 0 to {self.num_envs - 1}")

    # -- inside ------------------------------------------------------------------------------

    def _restore(self, states: dict[int, bytes]) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        self._board.take(self.backend.set_states(states), fresh=True)
        return self._board.observations(), self._board.infos(states)

    def _read_options(
        self, options: Mapping[str, Any] | None
    ) -> tuple[list[int], list[int | None], dict[str, Any]]:
        shared = dict(options or {})
        mask = shared.pop("reset_mask", None)
        indices = shared.pop("task_index", None)
        for key in shared:
            if key not in self._start_options:
                valid = ", ".join((*self._start_options, "reset_mask"))
                raise OptionError(f"unknown reset option {key!r}; valid: {valid}")
        if indices is None:
            indices = [None] * self.num_groups
        elif not isinstance(indices, Sequence | np.ndarray) or len(indices) != self.num_groups:
            raise OptionError(
                f"task_index needs one index (or None) per group: {self.num_groups}, got {indices!r}"
            )
        groups = self._masked_groups(mask)
        return (
            groups,
            [
                None
                if index is None or g not in groups
                else self.tasks.check_index(self.split, index)
                for g, index in enumerate(indices)
            ],
            shared,
        )

    def _masked_groups(self, mask: Any) -> list[int]:
        if mask is None:
            return list(range(self.num_groups))
        rows = np.asarray(mask)
        if rows.dtype != np.bool_ or rows.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must be a bool array of shape ({self.num_envs},)")
        rows = rows.reshape(self.num_groups, self.group_size)
        chosen = rows.any(axis=1)
        if (chosen != rows.all(axis=1)).any():
            raise ValueError("reset_mask must select whole groups")
        return [int(g) for g in np.flatnonzero(chosen)]

    def _seed_groups(self, seed: int | Sequence[int] | None, groups: list[int]) -> None:
        """New seeds for ``groups``, from new roots or from those that they have."""
        if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str):
            if len(seed) != self.num_groups:
                raise ValueError(f"a list of seeds needs one per group: {self.num_groups}")
            seeds = [check_seed(s) for s in seed]
            for g in groups:
                self._roots[g], self._episodes[g], self.group_seeds[g] = (seeds[g],), 0, seeds[g]
            return
        if seed is not None:
            root = check_seed(seed)
            self._np_random_seed = root
        else:
            root = fresh_seed() if any(self._roots[g] is None for g in groups) else 0
        for g in groups:
            if seed is not None or self._roots[g] is None:
                self._roots[g], self._episodes[g] = (root, g), -1
            self._episodes[g] += 1
            self.group_seeds[g] = keyed_seed(*(self._roots[g] or ()), self._episodes[g])

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{self.definition.spec.id}: the group env is closed")


def _length(actions: Any) -> str:
    return (
        repr(actions)
        if not hasattr(actions, "__len__") or isinstance(actions, str)
        else str(len(actions))
    )
