"""Stable-Baselines3 on the hub's environments: arrays and numbered actions instead of texts.

``SB3VecEnv(agent_envs.make_group("AgentEnv/Sokoban-v0", num_groups=64))`` is a ``VecEnv``;
``docs/sb3.md`` shows what to train on it. Needs ``pip install 'agent-envs[sb3]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete

from agent_envs.adapters._choices import AdmissibleActions, Choices, FixedActions
from agent_envs.adapters._discrete import DiscreteActionEnv, find_translation
from agent_envs.adapters._features import (
    Features,
    HashedText,
    Image,
    LineOneHots,
    RoomPlanes,
)
from agent_envs.core.errors import AgentEnvError, MissingExtra, OptionError
from agent_envs.core.seeding import check_seed, fresh_seed, keyed_seed
from agent_envs.group.shard import make_env
from agent_envs.group.vector import GroupVectorEnv

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise MissingExtra("agent_envs.adapters.sb3", "sb3") from None

from agent_envs.adapters._networks import AdmissiblePolicy, DenseExtractor

__all__ = [
    "AdmissibleActions",
    "AdmissiblePolicy",
    "Choices",
    "DenseExtractor",
    "DiscreteActionEnv",
    "Features",
    "FixedActions",
    "HashedText",
    "Image",
    "LineOneHots",
    "RoomPlanes",
    "SB3VecEnv",
    "play_tasks",
]


class SB3VecEnv(VecEnv):
    """SB3's ``VecEnv`` over a group env.

    A finished replica starts anew at once and by itself: ``infos[i]`` then holds
    ``terminal_observation``, ``TimeLimit.truncated`` (cut off, not ended) and ``is_success``, besides
    what the environment reports. A replica that fails counts as cut off; its error is in
    ``infos[i]["error"]``. One that cannot start raises :class:`AgentEnvError`.

    Args:
        group: a group env with ``group_size`` 1. It is closed with this one.
        observation: what the network sees. ``"image"``: the picture, uint8 (height, width, 3), for
            ``obs_mode`` ``image`` or ``both``. ``"grid"``: numbers from ``info``: four planes for
            rooms, two one-hot vectors for the number line. ``"text"``: hashed words. Or a feature
            maker of your own (:class:`Features`). None: the picture, the grid or the text, the
            first that there is.
        actions: a list of texts; or a number N: choice k is the k-th admissible action, one beyond
            the list a counted turn that changes nothing, and with ``"text"`` each offered action is
            described too. None: the admissible actions where they are the same in every start.
        tasks: indices of tasks (``range(20_000)``) from which every episode draws one at random;
            None: the tasks that the seeds mean.

    Attributes:
        features, choices: how observations and actions are translated.
    """

    def __init__(
        self,
        group: GroupVectorEnv,
        observation: str | Features | None = None,
        actions: Sequence[str] | int | Choices | None = None,
        *,
        tasks: Sequence[int] | None = None,
    ) -> None:
        if group.group_size != 1:
            raise OptionError(
                "SB3 starts every finished replica anew at once, which needs groups of one: "
                f"make_group(..., num_groups={group.num_envs}, group_size=1)"
            )
        if tasks is not None and not len(tasks):
            raise OptionError("tasks is empty: give at least one task index, or None")
        self.group, self.tasks = group, tasks
        probe = make_env(group.definition)
        self.features, self.choices = find_translation(observation, actions, probe)
        probe.close()
        self._infos: dict[str, Any] = {}
        self._history: list[list[str]] = [[] for _ in range(group.num_envs)]
        self._draw: np.random.Generator | None = None
        self._chosen = np.zeros(group.num_envs, np.int64)
        super().__init__(group.num_envs, self.features.space, Discrete(self.choices.n))

    # -- stepping ------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seeds for the next ``reset``: those that start the same episodes in single envs."""
        root = fresh_seed() if seed is None else check_seed(seed)
        self._draw = np.random.default_rng(root)
        self._seeds = [keyed_seed(root, i) for i in range(self.num_envs)]
        return self._seeds

    def reset(self) -> np.ndarray:
        """Start all replicas; ``set_options([{"task_index": i}, ...])`` before it chooses tasks."""
        seeds = None if None in self._seeds else self._seeds
        everyone = np.ones(self.num_envs, np.bool_)
        observations = self._start(everyone, seeds, self._options)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._chosen = np.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        if not self._infos:
            raise ResetNeeded("call reset() before the first step")
        texts = self.choices.texts(self._chosen, self._infos)
        seen, rewards, terminated, truncated, self._infos = self.group.step(texts)
        for history, text in zip(self._history, texts, strict=True):
            history.append(text)
        observations = self.features(seen, {**self._infos, "history": self._history})
        infos = _rows(self._infos, range(self.num_envs))
        done = terminated | truncated
        for info, cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        finished = np.flatnonzero(done).tolist()
        for i in finished:
            infos[i]["terminal_observation"] = observations[i].copy()
            infos[i]["is_success"] = infos[i]["won"]
        if finished:
            observations[finished] = self._start(done)
        return observations, rewards.astype(np.float32), done, infos

    def _start(
        self,
        which: np.ndarray,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any]] | None = None,
    ) -> np.ndarray:
        """Start some replicas; returns their observations."""
        rows = np.flatnonzero(which).tolist()
        shared: dict[str, Any] = {"reset_mask": which, "task_index": self._deal(rows, options)}
        for option in options or ():
            for key, value in option.items():
                if key != "task_index" and shared.setdefault(key, value) != value:
                    raise OptionError(f"option {key!r} must be the same for all replicas")
        seen, self._infos = self.group.reset(seed=seeds, options=shared)  # type: ignore[arg-type]
        failed = self._infos.get("error")
        for i in rows:
            if failed is not None and failed[i] is not None:
                raise AgentEnvError(f"replica {i} cannot start: {failed[i]}")
        for i, info in zip(rows, _rows(self._infos, rows), strict=True):
            self.reset_infos[i], self._history[i] = info, []
        some = {key: column[rows] for key, column in self._infos.items() if key[0] != "_"}
        some["history"] = [self._history[i] for i in rows]
        return self.features([seen[i] for i in rows], some)

    def _deal(
        self, rows: Iterable[int], options: Sequence[Mapping[str, Any]] | None
    ) -> list[int | None]:
        """A task for each of ``rows``: the option's, else one of the pool, else the seed's."""
        dealt: list[int | None] = [None] * self.num_envs
        for i in rows:
            dealt[i] = options[i].get("task_index") if options else None
            if dealt[i] is None and self.tasks is not None:
                if self._draw is None:
                    self._draw = np.random.default_rng()
                dealt[i] = self.tasks[int(self._draw.integers(len(self.tasks)))]
        return dealt

    def action_masks(self) -> np.ndarray:
        """Which choices mean an action now, shape (num_envs, n), bool; for ``MaskablePPO`` too."""
        return self.choices.masks(self._infos)

    def close(self) -> None:
        self.group.close()

    # -- what else SB3 asks --------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The group's attribute for each replica: what differs between replicas is in the infos."""
        if attr_name == "action_masks":
            return [self.action_masks for _ in self._get_indices(indices)]
        return [getattr(self.group, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"replicas have no attributes to set here, such as {attr_name!r}")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        if method_name != "action_masks":
            raise AttributeError(
                f"replicas may live in other processes: {method_name!r} is not there; use the "
                "methods of SB3VecEnv.group"
            )
        masks = self.action_masks()
        return [masks[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class Model(Protocol):
    """Anything that chooses as SB3's models do."""

    def predict(self, observation: Any, *, deterministic: bool = ...) -> tuple[Any, Any]: ...


def play_tasks(
    model: Model, venv: VecEnv, indices: Iterable[int], deterministic: bool = True
) -> list[dict[str, Any]]:
    """Play each task once; returns the info of each one's last step, in order of ``indices``.

    Args:
        model: an SB3 model.
        venv: an :class:`SB3VecEnv`, bare or in SB3's wrappers.
        indices: tasks of the split that its environments play.
    """
    left, last = list(indices), []
    while left:
        batch, left = left[: venv.num_envs], left[venv.num_envs :]
        # replicas without a task repeat the last one, uncounted
        deals = [batch[min(i, len(batch) - 1)] for i in range(venv.num_envs)]
        venv.set_options([{"task_index": index} for index in deals])
        observations = venv.reset()
        ends: dict[int, dict[str, Any]] = {}
        while len(ends) < len(batch):
            choices, _ = model.predict(observations, deterministic=deterministic)
            observations, _, done, infos = venv.step(choices)
            for i in np.flatnonzero(done[: len(batch)]).tolist():
                ends.setdefault(i, infos[i])
        last += [ends[i] for i in range(len(batch))]
    return last


def _rows(infos: Mapping[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
    """The group's columns as a dict per replica, of plain Python values."""
    found: list[dict[str, Any]] = [{} for _ in rows]
    for key, column in infos.items():
        if key[0] != "_":
            values, there = column.tolist(), infos["_" + key]
            for info, i in zip(found, rows, strict=True):
                if there[i]:
                    info[key] = values[i]
    return found
