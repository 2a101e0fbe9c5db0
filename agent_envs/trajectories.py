"""Trajectory files: JSON lines that can be read by anything and replayed.

Line kinds (``"record"``), schema 1:

* ``header``: ``schema``, ``env_id``, ``options``, ``agent_envs`` and ``gymnasium`` versions, ``label``.
* ``start``: ``trajectory``, ``group``, ``replica``, ``seed``, ``options`` (of ``reset``), ``parent``
  and ``parent_steps`` (for forks, else null and 0).
* ``step``: ``trajectory``, ``group``, ``replica``, ``step``, ``task_id``, ``observation`` (before
  acting), ``prompt``, ``completion``, ``action``, ``format_valid``, ``action_valid``, ``reward``,
  ``terminated``, ``truncated``, ``won``, ``score``, ``error``; ``next_observation`` on the last one.

Observations that are not text stand as ``{"sha256": ..., "shape": ...}``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

import agent_envs
from agent_envs.agent.records import Step
from agent_envs.agent.rollout import Rollout
from agent_envs.core.env import AgentEnv, Obs
from agent_envs.core.errors import DataError
from agent_envs.core.files import named
from agent_envs.group.protocol import Definition
from agent_envs.group.shard import make_env

SCHEMA = 1


def portable_observation(observation: Obs) -> Any:
    """Text as it is; arrays by digest and shape; dicts member by member."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        return {key: portable_observation(value) for key, value in observation.items()}
    array = np.ascontiguousarray(observation)
    return {"sha256": hashlib.sha256(array.tobytes()).hexdigest(), "shape": list(array.shape)}


class TrajectoryWriter:
    """Appends rollouts to a file; use as a context manager.

    Args:
        path: the file; its folder is made, an old file is replaced.
        definition: of the group env (``group.definition``).
        label: free text, such as the policy's name.
        prompts: also write prompts (by far the largest part).
    """

    def __init__(
        self, path: str | Path, definition: Definition, *, label: str = "", prompts: bool = True
    ) -> None:
        self.path, self._prompts = Path(path), prompts
        self._next = 0  # rollouts number their trajectories from 0, a file numbers on
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = self.path.open("w", encoding="utf-8")
        with named(self.path):
            self._write(
                record="header",
                schema=SCHEMA,
                env_id=definition.spec.id,
                options={**definition.spec.kwargs, **definition.options},
                agent_envs=agent_envs.__version__,
                gymnasium=gymnasium.__version__,
                label=label,
            )

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with named(self.path):
            self._file.close()

    def write(self, rollout: Rollout, label: str = "") -> None:
        """Add all trajectories of a rollout, each with its start and then its steps.

        Args:
            label: goes into the starts, such as the name of the policy that played.
        """
        with named(self.path):
            self._write_rollout(rollout, label)

    def _write_rollout(self, rollout: Rollout, label: str) -> None:
        trajectories, first = rollout.trajectories(), self._next
        for start in rollout.starts.values():
            row = asdict(start)
            for name in ("trajectory", "parent"):
                row[name] = None if row[name] is None else row[name] + first
            self._write(record="start", **row, label=label)
            self._next = max(self._next, row["trajectory"] + 1)
            for step in trajectories.get(start.trajectory, ()):
                self._write(record="step", **self._row(step, first))

    def _row(self, step: Step, first: int) -> dict[str, Any]:
        row = {
            "trajectory": step.trajectory + first,
            "group": step.group,
            "replica": step.replica,
            "step": step.step,
            "task_id": step.info.get("task_id", ""),
            "observation": portable_observation(step.observation),
            "completion": step.completion.text,
            "action": step.action,
            "format_valid": step.format_valid,
            "action_valid": step.action_valid,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "won": step.info.get("won", False),
            "score": step.info.get("score", 0.0),
            "error": step.error,
        }
        if self._prompts:
            row["prompt"] = step.prompt.text
        if step.terminated or step.truncated:
            row["next_observation"] = portable_observation(step.next_observation)
        return row

    def _write(self, **row: Any) -> None:
        self._file.write(json.dumps(row, ensure_ascii=True, default=str) + "\n")


@dataclass(slots=True)
class TrajectoryFile:
    """A file read back: header, starts by trajectory, steps by trajectory in order."""

    header: dict[str, Any]
    starts: dict[int, dict[str, Any]] = field(default_factory=dict)
    steps: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


def read_trajectories(path: str | Path) -> TrajectoryFile:
    """Read a file written by :class:`TrajectoryWriter`.

    Raises:
        DataError: it is missing, foreign, of another schema, or a line is broken (which one).
    """
    rows = _rows(Path(path))
    header = next(rows, (0, {}))[1]
    if header.get("record") != "header" or header.get("schema") != SCHEMA:
        raise DataError(f"{path} is no trajectory file of schema {SCHEMA} (its first line says so)")
    found = TrajectoryFile(header)
    for number, row in rows:
        try:
            if row["record"] == "start":
                found.starts[row["trajectory"]] = row
            elif row["record"] == "step":
                found.steps.setdefault(row["trajectory"], []).append(row)
            else:
                raise KeyError(row["record"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: lacks or misnames {error}") from None
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: not JSON ({error})") from None
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {number}: not a JSON object")
                yield number, row
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text: {error}") from error


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replay was not as recorded."""

    trajectory: int
    step: int
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"trajectory {self.trajectory}, step {self.step}, {self.field}: "
            f"recorded {self.recorded!r}, replayed {self.replayed!r}"
        )


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How much was replayed, and the first difference (None: all equal)."""

    trajectories: int
    steps: int
    difference: Difference | None


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


def replay(
    path: str | Path,
    *,
    on_trajectory: Callable[[int, int], None] = lambda done, total: None,
    **overrides: Any,
) -> ReplayReport:
    """Play a file's actions again and compare observations, rewards and flags.

    A trajectory is followed up to its first step with an error, which cannot be reproduced.

    Args:
        overrides: environment options that differ here, such as ``data_dir``.
    """
    content = read_trajectories(path)
    env = make_env(_definition(path, content.header, overrides))
    steps = 0
    try:
        for done, trajectory in enumerate(content.starts, 1):
            try:
                steps += _replay_one(env, content, trajectory)
            except (LookupError, TypeError, ValueError) as error:
                raise DataError(
                    f"{path}: trajectory {trajectory} cannot be replayed ({error!r})"
                ) from error
            on_trajectory(done, len(content.starts))
    except _Differs as found:
        return ReplayReport(len(content.starts), steps, found.difference)
    finally:
        env.close()
    return ReplayReport(len(content.starts), steps, None)


def _definition(
    path: str | Path, header: Mapping[str, Any], overrides: Mapping[str, Any]
) -> Definition:
    spec = spec_in(path, header)
    try:
        return Definition(spec, {**header["options"], **overrides})
    except (LookupError, TypeError) as error:
        raise DataError(f"{path}: its header holds no options ({error!r})") from error


def spec_in(path: str | Path, header: Mapping[str, Any]) -> EnvSpec:
    """The spec of the environment that a file's header names.

    Raises:
        DataError: it names none, or one that nothing registered here; says what to do.
    """
    name = header.get("env_id")
    if not isinstance(name, str):
        raise DataError(f"{path}: its header names no environment (env_id is {name!r})")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise DataError(
            f"{path}: unknown environment {name!r}; import the module that registers it first "
            "(on the command line: --import MODULE)"
        ) from error


def _replay_one(env: AgentEnv, content: TrajectoryFile, trajectory: int) -> int:
    start = content.starts[trajectory]
    observation, _ = env.reset(seed=start["seed"], options=start["options"])
    for action in _prelude(content, start):
        observation = env.step(action)[0]
    compared = 0
    for row in content.steps.get(trajectory, ()):

        def check(name: str, replayed: Any, row: dict[str, Any] = row) -> None:
            if name in row and row[name] != replayed:
                raise _Differs(Difference(trajectory, row["step"], name, row[name], replayed))

        check("observation", portable_observation(observation))
        if row["error"] is not None:
            break
        observation, reward, terminated, truncated, info = env.step(row["action"])
        check("reward", reward)
        check("terminated", terminated)
        check("truncated", truncated)
        check("won", info["won"])
        check("score", info["score"])
        check("next_observation", portable_observation(observation))
        compared += 1
    return compared


def actions_of(content: TrajectoryFile, trajectory: int) -> list[str]:
    """All actions of a trajectory from its reset on, those before a fork included."""
    own = [row["action"] for row in content.steps.get(trajectory, ()) if row["error"] is None]
    return _prelude(content, content.starts[trajectory]) + own


def _prelude(content: TrajectoryFile, start: Mapping[str, Any]) -> list[str]:
    """The actions before a fork, from the first ancestor on."""
    if start["parent"] is None:
        return []
    parent = content.starts.get(start["parent"])
    if parent is None:
        raise DataError(
            f"trajectory {start['trajectory']} was forked from {start['parent']}, "
            "which the file does not hold"
        )
    own = [row["action"] for row in content.steps.get(start["parent"], ())]
    return (_prelude(content, parent) + own)[: start["parent_steps"]]
