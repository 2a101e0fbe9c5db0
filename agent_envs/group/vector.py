"""The group environment: G groups x N replicas that share one initial state per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Tuple
from gymnasium.vector import AutoresetMode, VectorEnv

from agent_envs.core.env import Obs
from agent_envs.core.errors import OptionError, StateNotPortable
from agent_envs.core.info import INFO_KEYS
from agent_envs.core.profile import Profile
from agent_envs.core.seeding import check_seed, fresh_seed, keyed_seed
from agent_envs.core.spaces import check_text
from agent_envs.core.tasks import TaskSet
from agent_envs.group.protocol import Backend, Definition, ResetRequest, Result
from agent_envs.group.shard import Inline, make_env

_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def _process() -> Backend:
    from agent_envs.group.process import Process

    return Process()


BACKENDS: dict[str, Callable[[], Backend]] = {"inline": Inline, "process": _process}


class GroupVectorEnv(VectorEnv[Any, Any, Any]):
    """Replicas in groups, behind Gymnasium's vector interface.

    Replica ``i`` belongs to group ``i // group_size``. All replicas of a group start from the same
    state; a finished replica never steps again until its group is reset (``AutoresetMode.DISABLED``).
    A replica that fails is closed as truncated with ``infos["error"]``; the others go on.

    Args:
        spec: the environment's spec.
        num_groups: number of groups G.
        group_size: replicas per group N; ``num_envs`` is ``G * N``.
        backend: a name from ``BACKENDS`` or a backend object.
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
        for name, value in (("num_groups", num_groups), ("group_size", group_size)):
            if type(value) is not int or value < 1:
                raise OptionError(f"{name} must be a positive integer, got {value!r}")
        if isinstance(backend, str):
            if backend not in BACKENDS:
                raise OptionError(f"unknown backend {backend!r}; valid: {', '.join(BACKENDS)}")
            backend = BACKENDS[backend]()
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
        self._root_seed: int | None = None
        self._group_roots: list[int] | None = None
        self._episodes = [0] * num_groups
        self.group_seeds: list[int] = [0] * num_groups
        self.task_indices: list[int | None] = [None] * num_groups
        self._results = [Result() for _ in range(self.num_envs)]
        self.terminated = np.zeros(self.num_envs, np.bool_)
        self.truncated = np.ones(
            self.num_envs, np.bool_
        )  # a never-reset replica counts as finished
        self.backend: Backend = backend
        backend.start(self.definition, self.num_envs, group_size)

    # -- Gymnasium ---------------------------------------------------------------------------

    @property
    def active(self) -> np.ndarray:
        """Which replicas can step, shape (num_envs,), bool."""
        return ~(self.terminated | self.truncated)

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
        groups, indices, shared = self._read_options(options)
        self._seed_groups(seed, groups)
        requests = {}
        for g in groups:
            self.task_indices[g] = indices[g]
            start = shared if indices[g] is None else {**shared, "task_index": indices[g]}
            request = ResetRequest(self.group_seeds[g], start)
            for i in range(g * self.group_size, (g + 1) * self.group_size):
                requests[i] = request
        self._take(self.backend.reset(requests), fresh=True)
        return self._observations(), self._infos(requests)

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
        chosen = {i: action for i, action in enumerate(actions) if action is not None}
        results = self.advance(chosen)
        rewards = np.zeros(self.num_envs, np.float64)
        for i, result in results.items():
            rewards[i] = result.reward
        return (
            self._observations(), rewards, self.terminated.copy(), self.truncated.copy(),
            self._infos(results),
        )  # fmt: skip

    def advance(self, actions: Mapping[int, str]) -> dict[int, Result]:
        """:meth:`step` by replica index, without building arrays; finished replicas are left out.

        Raises:
            ValueError: an action is no text; nothing is stepped.
        """
        for i, action in actions.items():
            check_text(action, f"action {i}")
        finished = self.terminated | self.truncated
        results = self.backend.step({i: a for i, a in actions.items() if not finished[i]})
        self._take(results)
        return results

    def result(self, index: int) -> Result:
        """Where replica ``index`` stands: its last observation, info and flags (read-only)."""
        return self._results[index]

    def close_extras(self, **kwargs: Any) -> None:
        self.backend.close()

    # -- states and experts ------------------------------------------------------------------

    def get_states(self) -> tuple[bytes, ...]:
        """The states of all replicas.

        Raises:
            StateNotPortable: the environment cannot save states, or a replica is closed.
        """
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
        if len(states) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} states, got {len(states)}")
        return self._restore({i: s for i, s in enumerate(states) if s is not None})

    def fork(self, source: int, targets: Iterable[int]) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        """Copy the state of replica ``source`` to ``targets`` of the same group."""
        targets = list(targets)
        for i in (source, *targets):
            if not 0 <= i < self.num_envs:
                raise IndexError(f"replica {i} is outside 0 to {self.num_envs - 1}")
            if i // self.group_size != source // self.group_size:
                raise ValueError(f"replica {i} is not in the group of replica {source}")
        (state,) = self.backend.get_states([source]).values()
        if not isinstance(state, bytes):
            raise StateNotPortable(f"replica {source} has no state: {state}") from state
        return self._restore(dict.fromkeys(targets, state))

    def expert_actions(self, indices: Iterable[int] | None = None) -> dict[int, str | None]:
        """The scripted expert's actions for active replicas (None where it has none)."""
        asked = np.flatnonzero(self.active).tolist() if indices is None else list(indices)
        return self.backend.expert_actions(asked)

    # -- inside ------------------------------------------------------------------------------

    def _restore(self, states: dict[int, bytes]) -> tuple[tuple[Obs, ...], dict[str, Any]]:
        self._take(self.backend.set_states(states), fresh=True)
        return self._observations(), self._infos(states)

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
        if seed is None:
            if self._root_seed is None and self._group_roots is None:
                self._root_seed = fresh_seed()
        elif isinstance(seed, Sequence | np.ndarray):
            if len(seed) != self.num_groups:
                raise ValueError(f"a list of seeds needs one per group: {self.num_groups}")
            seeds = [check_seed(s) for s in seed]
            roots = self._group_roots or [0] * self.num_groups
            self._group_roots = [seeds[g] if g in groups else r for g, r in enumerate(roots)]
            for g in groups:
                self._episodes[g], self.group_seeds[g] = 0, seeds[g]
            return
        else:
            self._root_seed, self._group_roots = check_seed(seed), None
            self._np_random_seed = self._root_seed
            for g in groups:
                self._episodes[g] = -1
        for g in groups:
            self._episodes[g] += 1
            if self._group_roots is not None:
                self.group_seeds[g] = keyed_seed(self._group_roots[g], self._episodes[g])
            else:
                assert self._root_seed is not None
                self.group_seeds[g] = keyed_seed(self._root_seed, g, self._episodes[g])

    def _take(self, results: Mapping[int, Result], fresh: bool = False) -> None:
        """Remember where replicas stand. A failed one keeps its last observation and info."""
        for i, result in results.items():
            if result.error is not None:
                last = Result() if fresh else self._results[i]
                result.observation = self._blank() if last.observation is None else last.observation
                result.info = last.info
            self._results[i] = result
            self.terminated[i], self.truncated[i] = result.terminated, result.truncated

    def _blank(self) -> Obs:
        from gymnasium.vector.utils import create_empty_array

        blanks: Any = create_empty_array(self.single_observation_space, n=1)
        return blanks[0]

    def _observations(self) -> tuple[Obs, ...]:
        return tuple(
            [self._blank() if r.observation is None else r.observation for r in self._results]
        )

    def _infos(self, touched: Iterable[int]) -> dict[str, Any]:
        """Gymnasium's vector infos: one array per key and a mask ``_key``."""
        infos: dict[str, Any] = {}
        rows = [result.info for result in self._results]
        everyone = np.ones(self.num_envs, np.bool_)
        for name, key in INFO_KEYS.items():
            if key.sparse:
                continue
            column = np.empty(self.num_envs, _DTYPES.get(key.type, object))
            column[:] = _cells([row.get(name, key.default) for row in rows])
            infos[name], infos["_" + name] = column, everyone.copy()
        own = dict.fromkeys(name for row in rows for name in row if name not in INFO_KEYS)
        for name in own:
            self._fill(infos, name, [(i, row[name]) for i, row in enumerate(rows) if name in row])
        sources = [(i, rows[i]["data_source"]) for i in touched if "data_source" in rows[i]]
        self._fill(infos, "data_source", sources)
        errors = [
            (i, self._results[i].error) for i in range(self.num_envs) if self._results[i].error
        ]
        self._fill(infos, "error", errors)
        return infos

    def _fill(self, infos: dict[str, Any], name: str, cells: list[tuple[int, Any]]) -> None:
        if not cells:
            return
        column = np.zeros(self.num_envs, _DTYPES.get(type(cells[0][1]), object))
        if column.dtype == object:
            column[:] = None
        mask = np.zeros(self.num_envs, np.bool_)
        for i, value in cells:
            column[i], mask[i] = value, True
        infos[name], infos["_" + name] = column, mask


def _cells(values: list[Any]) -> Any:
    """A list that fills an object array cell by cell, even where the values are lists."""
    if values and isinstance(values[0], str | bool | int | float):
        return values
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells


def _length(actions: Any) -> str:
    return (
        repr(actions)
        if not hasattr(actions, "__len__") or isinstance(actions, str)
        else str(len(actions))
    )
