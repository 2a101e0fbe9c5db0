"""Sokoban by arrays: all replicas of a process in one NumPy step.

Every step touches at most three cells a room, so texts and codes are kept as arrays and patched.
Equal to :class:`SokobanEnv` byte for byte (tests compare the two).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_envs.core.batch import BatchEnv
from agent_envs.core.env import AgentEnv, Outcome
from agent_envs.core.spaces import check_text
from agent_envs.envs.sokoban.room import (
    BOX,
    BOX_ON_TARGET,
    DIRECTIONS,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    cells,
)

if TYPE_CHECKING:
    from agent_envs.envs.sokoban.env import SokobanEnv

_STILL, _INVALID = 4, 5
_COMMANDS = {name: i for i, name in enumerate((*DIRECTIONS, "still"))}


def _command(action: str) -> int:
    found = _COMMANDS.get(action)
    if found is None:
        found = _COMMANDS.get(check_text(action).strip().lower(), _INVALID)
    return found


class SokobanBatch(BatchEnv):
    """Rows of rooms of one size, observed as text.

    Args:
        env: gives size, symbols, rewards and limits.
    """

    def __init__(self, env: SokobanEnv, num_envs: int) -> None:
        from agent_envs.envs.sokoban import env as rules

        super().__init__(num_envs)
        self._height, self._width = env._shape
        size = self._height * self._width
        self._offsets = np.array([-self._width, self._width, -1, 1, 0, 0], np.int64)
        self._limit = np.iinfo(np.int64).max if env.max_steps is None else env.max_steps
        self._scale, self._count_noops = env.reward_scale, env.count_noops
        self._gains = np.array([rules.STEP_REWARD, rules.BOX_REWARD, rules.WIN_REWARD])
        self._symbols = np.array([ord(c) for c in rules.SYMBOLS[env.symbols]], np.uint32)
        sample = rules.room_text([0] * size, self._width, env.symbols)
        wall = rules.SYMBOLS[env.symbols][0]
        self._places = np.array([i for i, c in enumerate(sample) if c == wall], np.int64)
        self._kind = f"<U{len(sample)}"
        self._chars = np.tile(np.frombuffer(sample.encode("utf-32-le"), np.uint32), (num_envs, 1))
        self._ground = np.zeros((num_envs, size), np.int8)
        self._box = np.zeros((num_envs, size), np.bool_)
        self._state = np.zeros((num_envs, size), np.int8)
        self._player = np.zeros(num_envs, np.int64)
        self._stored = np.zeros(num_envs, np.int64)  # as rewarded: begins at 0
        self._on_target = np.zeros(num_envs, np.int64)
        self._targets = np.ones(num_envs, np.int64)
        self._steps = np.zeros(num_envs, np.int64)
        self._valid = np.zeros(num_envs, np.bool_)
        self._won = np.zeros(num_envs, np.bool_)
        self._texts = np.empty(num_envs, object)
        self._task, self._task_id = np.full(num_envs, "", object), np.full(num_envs, "", object)
        self._admissible = np.empty(num_envs, object)
        self._episodes: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._plans: list[list[int] | None] = [None] * num_envs
        self._actions = rules.ACTIONS

    # -- rows and single environments --------------------------------------------------------

    def load(self, row: int, env: AgentEnv) -> None:
        source: Any = env
        room, episode = source.room, dict(source.__dict__)
        self._episodes[row] = {key: episode[key] for key in _EPISODE}
        self._ground[row] = [
            0 if room.walls >> i & 1 else 1 + (room.targets >> i & 1)
            for i in range(self._ground.shape[1])
        ]
        self._box[row] = False
        self._box[row, list(cells(source._boxes))] = True
        self._player[row], self._stored[row] = source._player, source._stored
        self._on_target[row] = (source._boxes & room.targets).bit_count()
        self._targets[row] = room.targets.bit_count()
        self._steps[row] = source._steps
        last = source._last
        self._valid[row], self._won[row] = last.action_valid, last.won
        self.terminated[row], self.truncated[row] = source.terminated, source.truncated
        self._plans[row] = source._plan
        codes = source._codes()
        self._state[row] = room.codes(source._player, source._boxes)
        self._chars[row, self._places] = self._symbols[codes]
        self._texts[row] = source._text()
        self._task[row], self._task_id[row] = source.task, source._task_id
        self._admissible[row] = self._actions
        self.started[row] = True

    def store(self, row: int, env: AgentEnv) -> None:
        target: Any = env
        if not self.started[row]:
            target.started = False
            return
        target.__dict__.update(self._episodes[row])
        target._player, target._stored = int(self._player[row]), int(self._stored[row])
        target._boxes = sum(1 << int(i) for i in np.flatnonzero(self._box[row]))
        target._steps = int(self._steps[row])
        target.terminated, target.truncated = bool(self.terminated[row]), bool(self.truncated[row])
        target._running, target.started = not (target.terminated or target.truncated), True
        target._plan, target._frame = self._plans[row], None
        target._last = Outcome(
            self._texts[row], 0.0, target.terminated, bool(self._won[row]),
            bool(self._valid[row]), self._score(row),
        )  # fmt: skip

    def clear(self, row: int) -> None:
        self.started[row] = self.terminated[row] = False
        self.truncated[row] = True
        self._texts[row], self._admissible[row] = None, None
        self._task[row] = self._task_id[row] = ""
        self._valid[row] = self._won[row] = False
        self._steps[row] = self._on_target[row] = 0

    def _score(self, row: int) -> float:
        return float(self._on_target[row] / self._targets[row])

    # -- stepping ----------------------------------------------------------------------------

    def step(self, rows: Sequence[int], actions: Sequence[str]) -> np.ndarray:
        if not len(rows):
            return np.zeros(0)
        commands = [_command(action) for action in actions]
        self._follow(rows, commands)
        index, command = np.asarray(rows), np.asarray(commands)
        moved, gain = self._move(index, command)
        won = (self._on_target[index] == self._targets[index]) & (command < _STILL)
        # summed in the single env's order, so that the floats are the same
        rewards: np.ndarray = self._gains[0] + gain * self._gains[1] + won * self._gains[2]
        self._steps[index] += 1 if self._count_noops else command < _STILL
        self._valid[index] = command != _INVALID
        self._won[index] = won
        self.terminated[index] = won
        self.truncated[index] = ~won & (self._steps[index] >= self._limit)
        changed = index[moved]
        if changed.size:
            texts = self._chars[changed].view(self._kind).ravel()
            self._texts[changed] = texts.astype(object)
        return rewards * self._scale

    def _follow(self, rows: Sequence[int], commands: Sequence[int]) -> None:
        """Keep the experts' plans where they are followed."""
        for row, command in zip(rows, commands, strict=True):
            plan = self._plans[row]
            if plan and command < _STILL:
                self._plans[row] = plan[1:] if plan[0] == command else None

    def _move(self, index: np.ndarray, command: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Walk and push; returns which rows moved, and the sign of the change in stored boxes."""
        here, step = self._player[index], self._offsets[command]
        ahead = here + step
        beyond = np.clip(ahead + step, 0, self._ground.shape[1] - 1)
        ground, box = self._ground, self._box
        ground_ahead, ground_beyond = ground[index, ahead], ground[index, beyond]
        box_ahead = box[index, ahead]
        free_beyond = (ground_beyond > 0) & ~box[index, beyond]
        moved = (ground_ahead > 0) & (~box_ahead | free_beyond) & (command < _STILL)
        pushed = moved & box_ahead
        self._shift_boxes(index[pushed], ahead[pushed], beyond[pushed])
        change = (ground_beyond == TARGET).astype(np.int64) - (ground_ahead == TARGET)
        self._on_target[index] += np.where(pushed, change, 0)
        stored = np.where(command < _STILL, self._on_target[index], self._stored[index])
        gain = np.sign(stored - self._stored[index])
        self._stored[index] = stored
        self._player[index] = np.where(moved, ahead, here)
        rows = index[moved]
        self._paint(rows, here[moved], ground[rows, here[moved]].astype(np.int64))
        front = ground_ahead[moved]
        self._paint(rows, ahead[moved], np.where(front == TARGET, PLAYER_ON_TARGET, PLAYER))
        return moved, gain

    def _shift_boxes(self, rows: np.ndarray, source: np.ndarray, goal: np.ndarray) -> None:
        self._box[rows, source] = False
        self._box[rows, goal] = True
        on_target = self._ground[rows, goal] == TARGET
        self._paint(rows, goal, np.where(on_target, BOX_ON_TARGET, BOX))

    def _paint(self, rows: np.ndarray, where: np.ndarray, codes: np.ndarray) -> None:
        self._chars[rows, self._places[where]] = self._symbols[codes]
        # in room_state a player on a target stays 5
        self._state[rows, where] = np.minimum(codes, PLAYER)

    # -- what is seen ------------------------------------------------------------------------

    def observation(self, row: int) -> str:
        text: str = self._texts[row]
        return text

    def observations(self) -> list[Any]:
        texts: list[Any] = self._texts.tolist()
        return texts

    def info(self, row: int) -> dict[str, Any]:
        return {
            "task": self._task[row],
            "task_id": self._task_id[row],
            "admissible_actions": self._admissible[row],
            "is_action_valid": bool(self._valid[row]),
            "anchor": self._texts[row],
            "won": bool(self._won[row]),
            "score": self._score(row),
            "steps": int(self._steps[row]),
            "room_state": self._state[row].reshape(self._height, self._width).tolist(),
        }

    def infos(self) -> dict[str, np.ndarray | Callable[[], np.ndarray]]:
        anchors = self._texts.copy()
        anchors[~self.started] = ""
        state, started = self._state.copy(), self.started.copy()

        def rooms() -> np.ndarray:  # lists of lists cost as much as all the rest
            column = np.empty(self.num_envs, object)
            column[:] = state.reshape(-1, self._height, self._width).tolist()
            column[~started] = None
            return column

        return {
            "task": self._task.copy(),
            "task_id": self._task_id.copy(),
            "admissible_actions": self._admissible.copy(),
            "is_action_valid": self._valid.copy(),
            "anchor": anchors,
            "won": self._won.copy(),
            "score": self._on_target / self._targets,
            "steps": self._steps.copy(),
            "room_state": rooms,
        }


# what the base class and the env hold of an episode that stepping does not change
_EPISODE = ("room", "_task_id", "_episode_seed", "_start_from")
