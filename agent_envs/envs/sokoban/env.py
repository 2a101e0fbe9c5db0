"""``AgentEnv/Sokoban-v0`` and its named sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agent_envs.core.actions import Actions
from agent_envs.core.batch import BatchEnv
from agent_envs.core.env import Obs, Outcome
from agent_envs.core.errors import DataError, OptionError, flag, one_of, positive
from agent_envs.core.profile import Profile
from agent_envs.core.tasks import TaskSet
from agent_envs.core.visual import VisualEnv
from agent_envs.envs.sokoban.generator import SPLITS, check_size, generate
from agent_envs.envs.sokoban.levels import LevelTasks, open_levels
from agent_envs.envs.sokoban.profile import PROFILE
from agent_envs.envs.sokoban.room import (
    DIRECTIONS,
    PLAYER_ON_TARGET,
    WALL,
    Room,
    cells,
    move,
    room_from_codes,
)
from agent_envs.envs.sokoban.solver import difficulty, is_deadlocked, solve

STEP_REWARD, BOX_REWARD, WIN_REWARD = -0.1, 1.0, 10.0
# cell texts by code: wall, floor, target, box on target, box, player, player on target
SYMBOLS: dict[str, tuple[str, str, str, str, str, str, str]] = {
    "plain": ("#", "_", "O", "*", "X", "P", "S"),
    "seed": ("#", "_", "O", "\u221a", "X", "P", "S"),
    "list": ("#", "_", "O", "\u221a", "X", "P", "S"),
    "xsb": ("#", " ", ".", "*", "$", "@", "+"),
}
# symbols -> (before a cell, after a cell, between cells)
_LAYOUTS = {
    "plain": ("", "", " "),
    "seed": (" ", " \t", ""),
    "list": ("", "", " "),
    "xsb": ("", "", ""),
}
SIZES: dict[str, tuple[int, int]] = {  # difficulty -> (side, boxes)
    "easy": (6, 1),
    "medium": (6, 2),
    "hard": (8, 3),
    "expert": (10, 4),
}
ACTIONS = Actions(DIRECTIONS)
STILL = "still"


def default_max_steps(boxes: int) -> int:
    """30 for one or two boxes, 80 for three, 120 for four: at 15 many rooms cannot be won."""
    return {1: 30, 2: 30, 3: 80}.get(boxes, 30 * boxes)


class RoomTasks(TaskSet):
    """Generated rooms of one size; ids read ``split/HEIGHTxWIDTH-BOXESbox/index``."""

    splits = tuple(SPLITS)

    def __init__(self, height: int, width: int, boxes: int) -> None:
        check_size(height, width, boxes)
        self._size = (height, width, boxes)
        # the default limit, whatever max_steps is: an id names one room
        self._max_moves = default_max_steps(boxes)
        self.shape, self.most_boxes = (height, width), boxes
        self._name = f"{height}x{width}-{boxes}box"

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        return SPLITS[split]

    def task_id(self, split: str, index: int) -> str:
        return f"{split}/{self._name}/{self.check_index(split, index)}"

    def task_type(self, task_id: str) -> str:
        return task_id.split("/")[1] if "/" in task_id else ""

    def room(self, task_id: str) -> Room:
        """The room of an id, generated once per process for all replicas."""
        try:
            split, name, number = task_id.split("/")
            index = self.check_index(split, int(number))
        except ValueError as error:
            raise DataError(f"{task_id!r} is no Sokoban task: {error}") from error
        if name != self._name:
            raise DataError(f"{task_id!r} is a room of another size; this one plays {self._name}")
        return generate(*self._size, split, index, self._max_moves)


class SokobanEnv(VisualEnv):
    """Push all boxes onto targets in a warehouse seen from above.

    ### Actions
    ``up``, ``down``, ``left``, ``right``: walk, or push the box ahead if the cell behind it is free.
    ``still`` does nothing. Anything else is an invalid action: nothing moves, the step counts.

    ### Observations
    ``obs_mode="text"``: one line per row. ``symbols="plain"``: ``#`` wall, ``_`` floor, ``O`` target,
    ``X`` box, ``*`` box on target, ``P`` player, ``S`` player on target, separated by blanks;
    ``"seed"`` and ``"list"`` are the seed system's two layouts, ``"xsb"`` the common level format.
    ``"image"``: uint8 (height * tile_size, width * tile_size, 3). ``"both"``: a dict of the two.

    ### Rewards
    -0.1 a step; +1 when the number of boxes on targets rose, -1 when it fell; +10 when all are on
    targets; all times ``reward_scale``. An episode that never finishes returns the sum of these.

    ### Start and end
    ``reset(seed=s)`` plays the seed's room of the split, ``options={"task_index": i}`` the i-th,
    ``options={"room": {"fixed": rows, "state": rows}}`` an explicit one (codes as in
    ``info["room_state"]``: 0 wall, 1 floor, 2 target, 3 box on target, 4 box, 5 player).
    ``terminated`` when solved, ``truncated`` after ``max_steps``.

    ### Arguments
    * ``split``: ``train`` (endless), ``val``, ``test`` (1,000 rooms each). A room's split follows from
      a hash of its walls and targets, so splits share no floor plan.
    * ``dim_room`` (6, 6), ``num_boxes`` 1; or ``difficulty``: ``easy`` 6x6/1, ``medium`` 6x6/2,
      ``hard`` 8x8/3, ``expert`` 10x10/4.
    * ``levels`` or ``data_dir``: a file or folder of levels in XSB text (Boxoban and others) instead.
    * ``max_steps``: 30 for 1-2 boxes, 80 for 3, 30 a box beyond; generated rooms of the named sizes have
      a solution within that default. A smaller limit does not change the rooms.
    * ``symbols``, ``tile_size`` (32), ``deadlock_info`` (adds ``info["deadlock"]``),
      ``count_noops=False`` (``still`` and invalid actions do not count, as in the original).

    ### Data
    Rooms are generated here, or read from the files that ``levels`` names. Nothing is executed or
    downloaded.

    ### Differences from the original
    * Rooms come from a generator of our own: always solvable, never solved at the start, the same in every
      process (the original retries with a seed made by ``hash()``). Rooms themselves therefore differ.
    * ``max_steps`` is long enough for the generated rooms; the seed system's 15 is too short for many.
    * Invalid actions and ``still`` count as steps, so that every episode ends;
      ``count_noops=False`` undoes it.
    * Whole words are read as moves: "upward" is no ``up``.
    * Tiles are drawn by our own code.

    ### Access
    * reads: the package; the files that ``levels`` or ``data_dir`` names.
    * writes: nothing.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = PROFILE
    start_options: ClassVar[tuple[str, ...]] = ("room",)

    def __init__(
        self,
        *,
        split: str = "train",
        dim_room: tuple[int, int] | None = None,
        num_boxes: int | None = None,
        difficulty: str | None = None,
        levels: str | Path | None = None,
        data_dir: str | Path | None = None,
        max_steps: int | str | None = "default",
        reward_scale: float = 1.0,
        obs_mode: str = "text",
        symbols: str = "plain",
        tile_size: int = 32,
        deadlock_info: bool = False,
        count_noops: bool = True,
        render_mode: str | None = None,
    ) -> None:
        one_of("symbols", symbols, SYMBOLS)
        if type(tile_size) is not int or not 4 <= tile_size <= 256:
            raise OptionError(f"tile_size must be an integer from 4 to 256, got {tile_size!r}")
        flag("deadlock_info", deadlock_info)
        flag("count_noops", count_noops)
        sized = {"difficulty": difficulty, "dim_room": dim_room, "num_boxes": num_boxes}
        self.library = _library(levels, data_dir, sized)
        if max_steps == "default":
            max_steps = default_max_steps(self.library.most_boxes)
        height, width = self.library.shape
        super().__init__(
            self.library,
            image_shape=(height * tile_size, width * tile_size),
            obs_mode=obs_mode,
            split=split,
            max_steps=max_steps,
            reward_scale=reward_scale,
            render_mode=render_mode,
        )
        self.symbols, self.tile_size = symbols, tile_size
        self.deadlock_info, self.count_noops = deadlock_info, count_noops
        self._shape = self.library.shape
        self.room = Room(0, 0, 0, 0, 0, 0)
        self._player = self._boxes = self._stored = 0
        self._plan: list[int] | None = None
        self._frame: tuple[list[int], np.ndarray] | None = None

    @property
    def task(self) -> str:
        count = self.room.targets.bit_count()
        boxes = "the box onto the target" if count == 1 else f"all {count} boxes onto targets"
        return f"Push {boxes}."

    # -- the game ------------------------------------------------------------------------------

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        room = self._explicit_room(options["room"])
        return f"room/{room.fixed_hash:016x}"

    def _explicit_room(self, room: Any) -> Room:
        try:
            made = room_from_codes(room["fixed"], room["state"])
        except (KeyError, TypeError, OverflowError) as error:
            raise OptionError(f'room needs {{"fixed": rows, "state": rows}}: {error!r}') from error
        if isinstance(self.library, RoomTasks) and (made.height, made.width) != self._shape:
            raise OptionError(
                f"rooms here have one size: a {made.height}x{made.width} room needs dim_room="
                f"{(made.height, made.width)}"
            )
        return made

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        explicit = options.get("room")
        room = self.library.room(task_id) if explicit is None else self._explicit_room(explicit)
        self.room, self._player, self._boxes = room, room.player, room.boxes
        self._stored = 0  # as the original: even where a box starts on a target
        self._plan = self._frame = None
        return self._see()

    def _act(self, action: str) -> Outcome:
        name = action.strip().lower()
        direction = DIRECTIONS.index(name) if name in DIRECTIONS else -1
        if direction < 0:
            self._steps -= not self.count_noops
            return Outcome(
                self._see(), STEP_REWARD, action_valid=name == STILL, score=self._score()
            )
        self._follow(direction)
        room = self.room
        self._player, self._boxes = move(room, self._player, self._boxes, direction)
        stored = (self._boxes & room.targets).bit_count()
        won = self._boxes == room.targets
        change = (stored > self._stored) - (stored < self._stored)
        self._stored = stored
        reward = STEP_REWARD + change * BOX_REWARD + won * WIN_REWARD
        return Outcome(self._see(), reward, won, won, True, self._score())

    def _start_score(self) -> float:
        return self._score()

    def _score(self) -> float:
        return (self._boxes & self.room.targets).bit_count() / self.room.targets.bit_count()

    def admissible_actions(self) -> list[str]:
        return ACTIONS

    def make_batch(self, num_envs: int) -> BatchEnv | None:
        """Rows by arrays, where all rooms have one size and are seen as text."""
        if self.obs_mode != "text" or self.deadlock_info or not isinstance(self.library, RoomTasks):
            return None
        from agent_envs.envs.sokoban.batch import SokobanBatch

        return SokobanBatch(self, num_envs)

    # -- the expert ----------------------------------------------------------------------------

    def _follow(self, direction: int) -> None:
        """Keep the expert's plan while it is followed."""
        if self._plan:
            self._plan = self._plan[1:] if self._plan[0] == direction else None

    def expert_action(self) -> str:
        """The next move of a solution from here; ``still`` where none is found."""
        if not self._plan:
            solution = solve(self.room, self._player, self._boxes)
            if solution is None or not solution.moves:
                return STILL
            self._plan = list(solution.moves)
        return DIRECTIONS[self._plan[0]]

    def room_difficulty(self) -> int | None:
        """Pushes of the best solution found for the room's start; None where none was found."""
        return difficulty(self.room)

    # -- what is seen --------------------------------------------------------------------------

    def _codes(self) -> list[int]:
        codes = self.room.codes(self._player, self._boxes)
        if self.room.targets >> self._player & 1:
            codes[self._player] = PLAYER_ON_TARGET
        return codes

    def _text(self) -> str:
        return room_text(self._codes(), self.room.width, self.symbols)

    def _picture(self) -> np.ndarray:
        from agent_envs.envs.sokoban.drawing import draw, redraw

        height, width = self._shape
        codes = self._padded_codes()
        if self._frame is None:
            frame = draw(codes, height, width, self.tile_size)
        else:
            old, last = self._frame
            frame = redraw(last, old, codes, width, self.tile_size)
        self._frame = codes, frame
        return frame

    def _padded_codes(self) -> list[int]:
        """Codes in the picture's shape: levels smaller than the largest one get more wall."""
        codes, room = self._codes(), self.room
        height, width = max(self._shape[0], room.height), max(self._shape[1], room.width)
        if (height, width) != self._shape:
            raise OptionError(
                f"a {room.height}x{room.width} room does not fit pictures of {self._shape}"
            )
        if (room.height, room.width) == self._shape:
            return codes
        rows = [row + [WALL] * (width - room.width) for row in room.rows(codes)]
        rows += [[WALL] * width] * (height - room.height)
        return [code for row in rows for code in row]

    def _extra_info(self) -> Mapping[str, Any]:
        room = self.room
        info: dict[str, Any] = {"room_state": room.rows(room.codes(self._player, self._boxes))}
        if self.deadlock_info:
            info["deadlock"] = is_deadlocked(room, self._boxes)
        return info

    # -- states --------------------------------------------------------------------------------

    def _snapshot(self) -> Any:
        plan = None if self._plan is None else "".join(map(str, self._plan))
        room = f"{self.room.fixed_hash:016x}"
        return [self._player, list(cells(self._boxes)), self._stored, plan, room]

    def _restore(self, snapshot: Any) -> Obs:
        player, boxes, stored, plan, fixed = snapshot
        room, size = self.room, self.room.height * self.room.width
        if fixed != f"{room.fixed_hash:016x}":
            raise ValueError("the state is of another room than this task has here")
        free = room.all_cells & ~room.walls
        mask = sum(1 << _cell(box, size) for box in set(boxes))
        if mask & ~free or mask.bit_count() != room.boxes.bit_count():
            raise ValueError("the boxes do not fit the room")
        if not free & ~mask & 1 << _cell(player, size):
            raise ValueError("the player does not fit the room")
        if plan is not None and not set(plan) <= set("0123"):
            raise ValueError("the plan is no list of moves")
        self._player, self._boxes, self._stored = player, mask, _cell(stored, size)
        self._plan = None if plan is None else list(map(int, plan))
        return self._see()


def room_text(codes: list[int], width: int, symbols: str) -> str:
    """Codes (0 to 6, row by row) as the text observation of a symbol set."""
    before, after, between = _LAYOUTS[symbols]
    texts = [before + symbol + after for symbol in SYMBOLS[symbols]]
    shown = [texts[code] for code in codes]
    return "\n".join(between.join(shown[i : i + width]) for i in range(0, len(shown), width))


def _cell(value: Any, size: int) -> int:
    if type(value) is not int or not 0 <= value < size:
        raise ValueError(f"{value!r} is no cell of {size}")
    return value


def _size(
    difficulty: str | None, dim_room: tuple[int, int] | None, num_boxes: int | None
) -> tuple[int, int, int]:
    if difficulty is not None:
        one_of("difficulty", difficulty, SIZES)
        if dim_room is not None or num_boxes is not None:
            raise OptionError("give either difficulty, or dim_room and num_boxes")
        side, boxes = SIZES[difficulty]
        return side, side, boxes
    try:
        height, width = (6, 6) if dim_room is None else dim_room
    except (TypeError, ValueError):
        raise OptionError(f"dim_room must be (height, width), got {dim_room!r}") from None
    sizes = (
        ("height", height),
        ("width", width),
        ("num_boxes", 1 if num_boxes is None else num_boxes),
    )
    height, width, boxes = (positive(name, value) for name, value in sizes)
    return height, width, boxes


def _library(
    levels: str | Path | None, data_dir: str | Path | None, sized: dict[str, Any]
) -> RoomTasks | LevelTasks:
    """Levels of a path, or generated rooms of a size."""
    if levels is not None and data_dir is not None:
        raise OptionError("levels and data_dir mean the same: give one of them")
    path = data_dir if levels is None else levels
    if path is None:
        return RoomTasks(*_size(**sized))
    for name, value in sized.items():
        if value is not None:
            raise OptionError(f"{name} shapes generated rooms: leave it out with levels")
    return open_levels(path)
