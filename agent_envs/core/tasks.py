"""Tasks and splits: how many there are, which is the i-th, which belongs to a seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import gcd

from agent_envs.core.errors import OptionError, one_of


class TaskSet(ABC):
    """The tasks of an environment, in named splits with a fixed order.

    Attributes:
        source: where they come from (``info["data_source"]``).
        splits: names of the splits.
    """

    source: str = "embedded"
    splits: tuple[str, ...] = ("train",)

    @abstractmethod
    def count(self, split: str) -> int | None:
        """Number of tasks; None where the split is endless."""

    @abstractmethod
    def task_id(self, split: str, index: int) -> str:
        """Stable name of the ``index``-th task; OptionError where it is out of range."""

    def task_type(self, task_id: str) -> str:
        """The kind of task for evaluation tables; "" where there is only one."""
        return ""

    def index_for_seed(self, split: str, seed: int) -> int:
        """The task that a seed means.

        Endless splits: the seed itself. Finite ones: a stride walk, so any ``count`` consecutive
        seeds meet every task exactly once and neighbours in seed are not neighbours in the list.
        """
        count = self.count(split)
        return seed if count is None else seed * _stride(count) % count

    def panel(self, split: str, size: int, limit: int | None = None) -> Iterator[list[int]]:
        """Exact-once panels for evaluation: batches of at most ``size`` task indices.

        Every task of the split (or the first ``limit``) appears exactly once, whatever ``size``;
        the last batch is shorter rather than padded. An endless split needs a ``limit``.
        """
        if size < 1:
            raise OptionError(f"a panel's batch size must be at least 1, got {size}")
        total = self.panel_size(split, limit)
        return (list(range(i, min(i + size, total))) for i in range(0, total, size))

    def panel_size(self, split: str, limit: int | None = None) -> int:
        """Number of tasks in the panel; OptionError for an endless split without ``limit``."""
        count = self.count(split)
        if limit is None:
            if count is None:
                raise OptionError(f"split {split!r} is endless: say how many tasks to evaluate")
            return count
        if limit < 0:
            raise OptionError(f"the number of tasks must not be negative, got {limit}")
        return limit if count is None else min(count, limit)

    def check_index(self, split: str, index: object) -> int:
        """``index`` as a valid index of the split, or OptionError."""
        one_of("split", split, self.splits)
        count = self.count(split)
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise OptionError(f"task_index must be an integer, got {index!r}")
        number = int(index)
        if number < 0 or (count is not None and number >= count):
            size = "endless" if count is None else f"0 to {count - 1}"
            raise OptionError(f"task_index {number} is outside split {split!r} ({size})")
        return number


class ListedTasks(TaskSet):
    """Splits that are plain lists of task ids."""

    def __init__(self, splits: Mapping[str, Sequence[str]], source: str = "embedded") -> None:
        self.splits = tuple(splits)
        self.source = source
        self._ids = {name: tuple(ids) for name, ids in splits.items()}

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        return len(self._ids[split])

    def task_id(self, split: str, index: int) -> str:
        return self._ids[split][self.check_index(split, index)]


@lru_cache(maxsize=64)
def _stride(count: int) -> int:
    """An integer near count / golden ratio without common factor with ``count``."""
    stride = max(1, round(count * 0.6180339887498949))
    while gcd(stride, count) != 1:
        stride += 1
    return stride
