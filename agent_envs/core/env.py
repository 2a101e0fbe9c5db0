"""The base of all environments: the episode's rules, once.

A subclass writes the game (``_start``, ``_act``, ``_snapshot``, ``_restore``); this class owns
seeds, tasks, step limits, the ``info`` table, states and the errors of misuse.
"""

from __future__ import annotations

import inspect
import json
import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.seeding import np_random

from agent_envs.core.errors import OptionError, StateError, finite, one_of, positive
from agent_envs.core.profile import DEFAULT_PROFILE, Profile
from agent_envs.core.record import record
from agent_envs.core.seeding import check_seed, fresh_seed, keyed_seed
from agent_envs.core.spaces import TextSpace, check_text
from agent_envs.core.tasks import TaskSet

if TYPE_CHECKING:
    from agent_envs.core.batch import BatchEnv

Obs = Any
"""Text (str), an image (uint8 array H x W x 3) or a dict of both."""

_NO_INFO: Mapping[str, Any] = {}
_STATE_MAGIC = b"AE1:"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@record
class Outcome:
    """What one action did. ``score`` defaults to 1.0 when won, else 0.0.

    ``truncated``: cut short for a reason of the environment's own, beside ``max_steps``.
    """

    observation: Obs
    reward: float = 0.0
    terminated: bool = False
    won: bool = False
    action_valid: bool = True
    score: float | None = None
    truncated: bool = False


class AgentEnv(gymnasium.Env[Obs, str]):
    """One episode of one task. Actions are text; observations are text, image or both.

    Args:
        tasks: the task set.
        split: which split ``reset`` draws from.
        max_steps: actions after which an episode is truncated; None for no limit.
        reward_scale: factor on the original's reward.
        difficulty, data_dir: None; environments with levels or outside data take them.
        render_mode: None or "ansi" (the last observation as text).

    ``reset(options=...)`` understands ``task_index`` and what ``start_options`` names.
    ``local_options`` are those that no client of an env server may set: they name programs or lift bounds.
    """

    profile: ClassVar[Profile] = DEFAULT_PROFILE
    start_options: ClassVar[tuple[str, ...]] = ()
    local_options: ClassVar[tuple[str, ...]] = ()
    state_version: ClassVar[int] = 1
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's interface)

    tasks: TaskSet
    _generator: np.random.Generator | None = None
    _np_random_seed: int | None = None

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Name the valid options where an unknown one is given."""
        valid = cls.option_names()
        for name in options:
            if name not in valid and name != "tasks":
                raise OptionError(
                    f"{cls.__name__} has no option {name!r}; valid: {', '.join(valid)}"
                )
        return super().__new__(cls)

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Options of the constructor, those that it hands on to its base included."""
        names: dict[str, None] = {}
        for base in cls.__mro__:
            if "__init__" not in vars(base):
                continue
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            names |= {p.name: None for p in parameters if p.kind in _NAMED}
            if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
                break
        return tuple(name for name in names if name not in ("self", "tasks"))

    def __init__(
        self,
        tasks: TaskSet,
        *,
        split: str = "train",
        max_steps: int | None = None,
        reward_scale: float = 1.0,
        difficulty: str | None = None,
        data_dir: Any = None,
        render_mode: str | None = None,
    ) -> None:
        for name, value in (("difficulty", difficulty), ("data_dir", data_dir)):
            if value is not None:  # environments that have these take them themselves
                raise OptionError(f"{type(self).__name__} takes no {name}, got {value!r}")
        one_of("split", split, tasks.splits)
        if max_steps is not None:
            max_steps = positive("max_steps (or None)", max_steps)
        one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.tasks, self.split, self.max_steps = tasks, split, max_steps
        self.reward_scale, self.render_mode = finite("reward_scale", reward_scale), render_mode
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self._root_seed: int | None = None
        self._episode = 0
        self._running = False
        self.started = False
        self._task_id = ""
        self._start_from: dict[str, Any] = {}
        self._episode_seed = 0
        self._steps = 0
        self.terminated = self.truncated = False
        self._last = Outcome("")

    # -- what a subclass writes ----------------------------------------------------------------

    @abstractmethod
    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        """Begin a task and return the first observation.

        All randomness of the episode derives from ``seed``. ``options`` holds the given
        ``start_options``; when it does, ``task_id`` is what ``_explicit_task`` returned.
        """

    @abstractmethod
    def _act(self, action: str) -> Outcome:
        """Carry out an action; never raises on any text."""

    @abstractmethod
    def _snapshot(self) -> Any:
        """The episode's own state as JSON-able data, small: a difference from the start."""

    @abstractmethod
    def _restore(self, snapshot: Any) -> Obs:
        """Set the state after ``_start`` ran for the same task; returns the current observation.

        Raises ValueError, KeyError or TypeError on data that does not fit.
        """

    @property
    @abstractmethod
    def task(self) -> str:
        """The current task in words."""

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        """The ``task_id`` of an explicit start (``options`` holds a key of ``start_options``)."""
        raise NotImplementedError

    def _start_score(self) -> float | None:
        """``info["score"]`` at the start, where it is not 0."""
        return None

    def admissible_actions(self) -> list[str] | None:
        """Actions that do something now, None where they cannot be enumerated."""
        return None

    def expert_action(self) -> str | None:
        """The scripted expert's next action, None where there is none."""
        return None

    def make_batch(self, num_envs: int) -> BatchEnv | None:
        """Rows that are stepped by arrays, with this env's options; None where there are none."""
        return None

    @staticmethod
    def prepare(envs: Sequence[AgentEnv], actions: Sequence[str]) -> None:
        """Called with all replicas of a process that are about to step, before they do.

        For work that is cheaper shared (one request for all searches). A step must do the same without it.
        """

    def _anchor(self) -> str:
        """GiGPO's grouping key of the current state; by default the raw observation."""
        return str(self._last.observation)

    def _extra_info(self) -> Mapping[str, Any]:
        """Further ``info`` keys of this environment, always the same keys and types."""
        return _NO_INFO

    # -- Gymnasium ------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Start an episode: the seed's task, the ``task_index``-th of the split, or an explicit start.

        Without a seed the sequence that the last seed began goes on deterministically.
        """
        start, index = self._read_options(options)
        if seed is None:
            if self._root_seed is None:
                self._root_seed = fresh_seed()
            episode = self._episode + 1
            episode_seed = keyed_seed(self._root_seed, episode)
        else:
            episode, episode_seed = 0, check_seed(seed)
            self._np_random, self._np_random_seed = None, episode_seed
        if start:
            task_id = self._explicit_task(start)
        else:
            if index is None:
                index = self.tasks.index_for_seed(self.split, episode_seed)
            task_id = self.tasks.task_id(self.split, index)
        if seed is not None:
            self._root_seed = episode_seed
        self._episode = episode
        return self._begin(task_id, episode_seed, start)

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset or after the episode's end.
            ValueError: the action is not a string or cannot be encoded.
        """
        if not self._running:
            raise ResetNeeded(
                f"{self._name()}: " + ("the episode is over" if self.started else "not started")
                + "; call reset() first"
            )  # fmt: skip
        check_text(action)
        self._last = outcome = self._act(action)
        self._steps += 1
        self.terminated = outcome.terminated
        self.truncated = not outcome.terminated and (
            outcome.truncated or (self.max_steps is not None and self._steps >= self.max_steps)
        )
        self._running = not (self.terminated or self.truncated)
        reward = outcome.reward * self.reward_scale
        return outcome.observation, reward, self.terminated, self.truncated, self._info()

    def render(self) -> Any:
        """The current observation as text (``render_mode="ansi"``)."""
        return str(self._last.observation) if self.render_mode == "ansi" else None

    @property
    def _np_random(self) -> np.random.Generator | None:
        """Gymnasium's generator, made when first asked for: it would be half of a reset's time."""
        if self._generator is None and self._np_random_seed is not None:
            self._generator, _ = np_random(self._np_random_seed)
        return self._generator

    @_np_random.setter
    def _np_random(self, value: np.random.Generator | None) -> None:
        self._generator = value

    # -- states ---------------------------------------------------------------------------------

    def get_state(self) -> bytes:
        """The episode's state: small and portable. Same bytes, same future.

        Raises:
            gymnasium.error.ResetNeeded: nothing was started yet.
            StateNotPortable: this environment cannot save its state.
        """
        if not self.started:
            raise ResetNeeded(f"{self._name()}: no state before the first reset()")
        last = self._last
        content = {
            "env": type(self).__name__,
            "version": self.state_version,
            "task": self._task_id,
            "from": self._start_from,
            "seed": self._episode_seed,
            "steps": self._steps,
            "end": [self.terminated, self.truncated],
            "last": [last.won, last.action_valid, last.score],
            "game": self._snapshot(),
        }
        text = json.dumps(content, separators=(",", ":"), default=_plain).encode()
        return _STATE_MAGIC + zlib.compress(text, 6)

    def set_state(self, state: bytes) -> tuple[Obs, dict[str, Any]]:
        """Continue from ``state``; returns what the agent sees there, as ``reset`` does.

        Raises:
            StateError: the state is corrupt, of another environment or of a task that is not
                here. The environment is left unchanged.
        """
        content = self._read_state(state)
        before = dict(self.__dict__)
        try:
            seed, steps = check_seed(content["seed"]), content["steps"]
            self._begin(content["task"], seed, content["from"])
            observation = self._restore(content["game"])
            self._steps = _whole(steps)
            self.terminated, self.truncated = map(bool, content["end"])
            won, valid, score = content["last"]
            self._last = Outcome(observation, 0.0, self.terminated, bool(won), bool(valid), score)
            self._running = not (self.terminated or self.truncated)
            return observation, {**self._info(), "data_source": self.tasks.source}
        except StateError:
            self.__dict__.update(before)
            raise
        except Exception as error:
            self.__dict__.update(before)
            raise StateError(
                f"{self._name()}: cannot restore a state of task {content.get('task')!r}: {error}"
            ) from error

    def _read_state(self, state: bytes) -> dict[str, Any]:
        try:
            if state[: len(_STATE_MAGIC)] != _STATE_MAGIC:
                raise ValueError("it does not begin like a state")
            inflate = zlib.decompressobj()
            content = json.loads(inflate.decompress(state[len(_STATE_MAGIC) :]))
            if inflate.unused_data or not inflate.eof:
                raise ValueError("it has a wrong end")
            found = content["env"], content["version"]
        except Exception as error:
            raise StateError(f"{self._name()}: not a state of an agent env: {error}") from error
        if found != (type(self).__name__, self.state_version):
            raise StateError(
                f"{self._name()}: the state is of {found[0]} version {found[1]}, "
                f"this is {type(self).__name__} version {self.state_version}"
            )
        return dict(content)

    # -- inside ---------------------------------------------------------------------------------

    def _read_options(self, options: Mapping[str, Any] | None) -> tuple[dict[str, Any], int | None]:
        options = options or {}
        for key in options:
            one_of("reset option", key, ("task_index", *self.start_options))
        # a copy: what the caller does to its lists later must not change what states begin with
        start = {
            key: deepcopy(options[key])
            for key in self.start_options
            if options.get(key) is not None
        }
        index = options.get("task_index")
        if start and index is not None:
            raise OptionError(f"give either task_index or {', '.join(start)}, not both")
        return start, None if index is None else self.tasks.check_index(self.split, index)

    def _begin(self, task_id: str, seed: int, start: dict[str, Any]) -> tuple[Obs, dict[str, Any]]:
        observation = self._start(task_id, seed, start)
        self._task_id, self._episode_seed, self._start_from = task_id, seed, start
        self._steps = 0
        self.terminated = self.truncated = False
        self._last = Outcome(observation, score=self._start_score())
        self._running = self.started = True
        return observation, {**self._info(), "data_source": self.tasks.source}

    def _info(self) -> dict[str, Any]:
        last = self._last
        score = last.score
        info = {
            "task": self.task,
            "task_id": self._task_id,
            "admissible_actions": self.admissible_actions(),
            "is_action_valid": last.action_valid,
            "anchor": self._anchor(),
            "won": last.won,
            "score": float(last.won if score is None else score),
            "steps": self._steps,
        }
        info.update(self._extra_info())
        return info

    def _name(self) -> str:
        return self.spec.id if self.spec is not None else type(self).__name__


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a step count")
    return value


def _plain(value: Any) -> Any:
    """JSON form of what users put into options: arrays as lists, paths as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
