"""Where all replicas of a group env stand, and how that becomes Gymnasium's arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_empty_array

from agent_envs.core.batch import BatchEnv
from agent_envs.core.env import Obs
from agent_envs.core.info import INFO_KEYS
from agent_envs.core.lazy import LazyDict
from agent_envs.group.protocol import Result

_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


class Board:
    """The latest result of each replica, kept one by one.

    Attributes:
        terminated, truncated: shape (num_envs,), bool; a never-reset replica counts as finished.
    """

    def __init__(self, num_envs: int, space: Space[Any]) -> None:
        self.num_envs, self._space = num_envs, space
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.ones(num_envs, np.bool_)
        self._over = [True] * num_envs
        self._results = [Result() for _ in range(num_envs)]
        self._blank: Any = None

    def take(self, results: Mapping[int, Result], fresh: bool = False) -> None:
        """Remember where replicas stand. A failed one keeps its last observation and info."""
        for i, result in results.items():
            if result.error is not None:
                last = Result() if fresh else self._results[i]
                result.observation, result.info = last.observation, last.info
            freeze(result.observation)
            self._results[i] = result
            self.terminated[i], self.truncated[i] = result.terminated, result.truncated
            self._over[i] = result.terminated or result.truncated

    @property
    def over(self) -> list[bool]:
        """Which replicas cannot step; the arrays once more, as what is read one by one."""
        return self._over

    def result(self, i: int) -> Result:
        return self._results[i]

    def observations(self) -> tuple[Obs, ...]:
        return tuple(
            [self.blank() if r.observation is None else r.observation for r in self._results]
        )

    def blank(self) -> Obs:
        """What a replica shows that never came to its first observation."""
        if self._blank is None:
            blanks: Any = create_empty_array(self._space, n=1)
            self._blank = (
                {key: value[0] for key, value in blanks.items()}
                if isinstance(blanks, dict)
                else blanks[0]
            )
        return self._blank

    def infos(self, touched: Iterable[int]) -> dict[str, Any]:
        """Gymnasium's vector infos: one array per key and a mask ``_key``."""
        infos: dict[str, Any] = {}
        rows = [result.info for result in self._results]
        for name, key in INFO_KEYS.items():
            if not key.sparse:
                column = np.empty(self.num_envs, _DTYPES.get(key.type, object))
                column[:] = _cells([row.get(name, key.default) for row in rows])
                infos[name], infos["_" + name] = column, np.ones(self.num_envs, np.bool_)
        own = dict.fromkeys(name for row in rows for name in row if name not in INFO_KEYS)
        for name in own:
            fill(
                infos,
                name,
                [(i, row[name]) for i, row in enumerate(rows) if name in row],
                self.num_envs,
            )
        self._sparse(
            infos, [(i, rows[i]["data_source"]) for i in touched if "data_source" in rows[i]]
        )
        return infos

    def _sparse(self, infos: dict[str, Any], sources: list[tuple[int, Any]]) -> None:
        fill(infos, "data_source", sources, self.num_envs)
        errors = [(i, r.error) for i, r in enumerate(self._results) if r.error]
        fill(infos, "error", errors, self.num_envs)


class BatchBoard(Board):
    """Reads a batch env's columns; only errors and sources are kept one by one."""

    def __init__(self, batch: BatchEnv, space: Space[Any]) -> None:
        super().__init__(batch.num_envs, space)
        self._batch = batch
        self.terminated, self.truncated = batch.terminated, batch.truncated

    def take(self, results: Mapping[int, Result], fresh: bool = False) -> None:
        for i, result in results.items():
            source = result.info.get("data_source")
            self._results[i] = Result(
                info={} if source is None else {"data_source": source}, error=result.error
            )
            if result.error is not None:
                self.terminated[i], self.truncated[i] = False, True

    @property
    def over(self) -> list[bool]:
        over: list[bool] = (self.terminated | self.truncated).tolist()
        return over

    def result(self, i: int) -> Result:
        kept, batch = self._results[i], self._batch
        terminated, truncated = bool(batch.terminated[i]), bool(batch.truncated[i])
        if not batch.started[i]:
            return Result(None, {}, 0.0, terminated, truncated, kept.error)
        return Result(batch.observation(i), batch.info(i), 0.0, terminated, truncated, kept.error)

    def observations(self) -> tuple[Obs, ...]:
        seen = self._batch.observations()
        return (
            tuple([self.blank() if o is None else o for o in seen]) if None in seen else tuple(seen)
        )

    def infos(self, touched: Iterable[int]) -> dict[str, Any]:
        infos = LazyDict()
        started = self._batch.started
        for name, column in self._batch.infos().items():
            if name in INFO_KEYS:
                infos[name], infos["_" + name] = column, np.ones(self.num_envs, np.bool_)
            elif started.any():
                if callable(column):
                    infos.later(name, column)
                else:
                    infos[name] = column
                infos["_" + name] = started.copy()
        rows = self._results
        self._sparse(
            infos,
            [(i, rows[i].info["data_source"]) for i in touched if "data_source" in rows[i].info],
        )
        return infos


def freeze(observation: Obs) -> None:
    """Make arrays read-only: replicas that stay as they are show them again."""
    if isinstance(observation, np.ndarray):
        observation.flags.writeable = False
    elif isinstance(observation, dict):
        for value in observation.values():
            freeze(value)


def fill(infos: dict[str, Any], name: str, cells: list[tuple[int, Any]], num_envs: int) -> None:
    """Add a sparse column; nothing where there are no cells."""
    if not cells:
        return
    column = np.zeros(num_envs, _dtype([value for _, value in cells]))
    if column.dtype == object:
        column[:] = None
    mask = np.zeros(num_envs, np.bool_)
    for i, value in cells:
        column[i], mask[i] = value, True
    infos[name], infos["_" + name] = column, mask


def _dtype(values: list[Any]) -> Any:
    """What a column of these values can be; objects where they differ in kind or exceed 64 bits."""
    kinds = set(map(type, values))
    kind = kinds.pop()
    if kinds or (kind is int and not all(-(2**63) <= value < 2**63 for value in values)):
        return object
    return _DTYPES.get(kind, object)


def _cells(values: list[Any]) -> Any:
    """A list that fills an object array cell by cell, even where the values are lists."""
    if values and isinstance(values[0], str | bool | int | float):
        return values
    cells = np.empty(len(values), object)
    for i, value in enumerate(values):
        cells[i] = value
    return cells
