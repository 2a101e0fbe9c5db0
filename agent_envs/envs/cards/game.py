"""What the four card games share: tasks, options, limits and states."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Any, ClassVar

from agent_envs.core.env import Obs
from agent_envs.core.errors import one_of
from agent_envs.core.seeding import keyed_seed
from agent_envs.core.tasks import TaskSet
from agent_envs.core.visual import VisualEnv
from agent_envs.envs.cards.deck import read_number

SPLITS = ("train", "test")
TEST_TASKS = 200
IMAGE_SIZES = (64, 2048)
# what models write for the keys of a keyboard
SIGNS = {"\u00d7": "*", "\u00f7": "/", "\u2212": "-"}


class KeyedTasks(TaskSet):
    """Deals by number: ``train/0``, ``train/1`` ... without end, and 200 of ``test``."""

    splits = SPLITS

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        return None if split == "train" else TEST_TASKS

    def task_id(self, split: str, index: int) -> str:
        return f"{split}/{self.check_index(split, index)}"


class CardGame(VisualEnv):
    """Options and states. A subclass writes, besides ``_start`` and ``_act``, what is abstract here.

    Attributes:
        game_key: tells the random streams of the games apart.
    """

    game_key: ClassVar[int]

    def __init__(
        self,
        *,
        split: str = "train",
        max_steps: int | None = None,
        reward_scale: float = 1.0,
        obs_mode: str = "text",
        image_size: int = 300,
        difficulty: str | None = None,
        data_dir: Any = None,
        render_mode: str | None = None,
    ) -> None:
        self.image_size = read_number("image_size", image_size, *IMAGE_SIZES)
        super().__init__(
            KeyedTasks(),
            image_shape=(self.image_size, self.image_size),
            obs_mode=obs_mode,
            split=split,
            max_steps=max_steps,
            reward_scale=reward_scale,
            difficulty=difficulty,
            data_dir=data_dir,
            render_mode=render_mode,
        )
        self._asked_steps = max_steps

    def _limit_steps(self, own: int) -> None:
        """Let ``max_steps`` be the game's own limit where the option asks for no smaller one."""
        self.max_steps = own if self._asked_steps is None else min(own, self._asked_steps)

    def _stream(self, task_id: str) -> random.Random:
        """The random stream of a task's deal: the task's name alone decides it."""
        split, _, index = task_id.partition("/")
        return random.Random(keyed_seed(self.game_key, SPLITS.index(split), int(index)))

    @abstractmethod
    def _deal(self) -> list[Any]:
        """What was dealt, as JSON-able data."""

    @abstractmethod
    def _progress(self) -> Any:
        """What happened since, as JSON-able data."""

    @abstractmethod
    def _resume(self, progress: Any) -> None:
        """Set what :meth:`_progress` returned; ValueError, KeyError or TypeError if it is wrong."""

    def _snapshot(self) -> Any:
        return [self._deal(), self._progress()]

    def _restore(self, snapshot: Any) -> Obs:
        deal, progress = snapshot
        if deal != self._deal():
            raise ValueError(
                f"it was saved under other options, which deal {deal}, not {self._deal()}"
            )
        self._resume(progress)
        return self._see()
