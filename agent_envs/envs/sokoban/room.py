"""Rooms as bit boards: an immutable room, moves on it, and its codes.

Cells are numbered row by row; sets of cells are ``int`` bit masks. A room is closed (walls all
around what the player can reach), so shifting a mask never leaves it.

Codes of ``room_state`` are those of gym-sokoban: 0 wall, 1 floor, 2 target, 3 box on target, 4 box,
5 player; 6, a player on a target, is accepted on input and shown in text and pictures only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_envs.core.errors import OptionError

WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
DIRECTIONS = ("up", "down", "left", "right")


class RoomError(OptionError):
    """A room that cannot be played: wrong counts, open walls, ragged rows."""


def cells(mask: int) -> Iterator[int]:
    """Numbers of the set cells, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True)
class Room:
    """A room and its start. ``walls``, ``targets`` and ``boxes`` are masks, ``player`` a cell."""

    height: int
    width: int
    walls: int
    targets: int
    boxes: int
    player: int

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """Cell offsets of up, down, left, right."""
        return -self.width, self.width, -1, 1

    @cached_property
    def all_cells(self) -> int:
        return (1 << self.height * self.width) - 1

    @cached_property
    def fixed_hash(self) -> int:
        """64-bit hash of the fixed part (size, walls, targets): what a split follows from."""
        length = -(-self.height * self.width // 8)
        content = (
            self.height.to_bytes(2, "little")
            + self.width.to_bytes(2, "little")
            + self.walls.to_bytes(length, "little")
            + self.targets.to_bytes(length, "little")
        )
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")

    def region(self, player: int, boxes: int) -> int:
        """All cells that the player can walk to, by flood fill."""
        free = self.all_cells & ~(self.walls | boxes)
        width, region, grown = self.width, 0, 1 << player
        while grown != region:
            region = grown
            grown |= (grown << 1 | grown >> 1 | grown << width | grown >> width) & free
        return region

    def codes(self, player: int, boxes: int) -> list[int]:
        """``room_state`` codes of all cells in a row (a player on a target is 5)."""
        found = [
            WALL if self.walls >> i & 1 else TARGET if self.targets >> i & 1 else FLOOR
            for i in range(self.height * self.width)
        ]
        for i in cells(boxes):
            found[i] = BOX_ON_TARGET if found[i] == TARGET else BOX
        found[player] = PLAYER
        return found

    def rows(self, values: Sequence[Any]) -> list[list[Any]]:
        """A flat list of cells as a list of rows."""
        width = self.width
        return [list(values[i : i + width]) for i in range(0, self.height * width, width)]


def move(room: Room, player: int, boxes: int, direction: int) -> tuple[int, int]:
    """Player and boxes after a step in ``direction`` (an index of DIRECTIONS)."""
    step = room.steps[direction]
    ahead = player + step
    bit = 1 << ahead
    if room.walls & bit:
        return player, boxes
    if boxes & bit:
        beyond = 1 << ahead + step
        if (room.walls | boxes) & beyond:
            return player, boxes
        return ahead, boxes ^ bit ^ beyond
    return ahead, boxes


def room_from_codes(fixed: Any, state: Any) -> Room:
    """A room from ``fixed`` and ``state`` codes (lists of rows, or arrays).

    Raises:
        RoomError: the codes do not make a playable room; the message says why.
    """
    try:
        fixed, state = ([[int(c) for c in row] for row in rows] for rows in (fixed, state))
    except ValueError as error:
        raise RoomError(f"codes must be whole numbers ({error})") from error
    height, width = len(state), len(state[0]) if state else 0
    if not height or any(len(row) != width for row in (*fixed, *state)) or len(fixed) != height:
        raise RoomError("fixed and state must be rows of equal length and of the same shape")
    flat = [c for row in state for c in row]
    ground = [c for row in fixed for c in row]
    if not set(flat) <= set(range(7)) or not set(ground) <= {WALL, FLOOR, TARGET}:
        raise RoomError("codes are 0 to 6 in state and 0 to 2 in fixed")
    for i, (code, below) in enumerate(zip(flat, ground, strict=True)):
        on_target = code in (TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET)
        if (code == WALL) != (below == WALL) or (
            code != PLAYER and code != WALL and on_target != (below == TARGET)
        ):
            raise RoomError(f"state and fixed disagree at row {i // width}, column {i % width}")
    return checked_room(
        height,
        width,
        _mask(ground, (WALL,)),
        _mask(ground, (TARGET,)),
        _mask(flat, (BOX, BOX_ON_TARGET)),
        [i for i, code in enumerate(flat) if code in (PLAYER, PLAYER_ON_TARGET)],
    )


def _mask(codes: Sequence[int], wanted: tuple[int, ...]) -> int:
    return sum(1 << i for i, code in enumerate(codes) if code in wanted)


def checked_room(
    height: int, width: int, walls: int, targets: int, boxes: int, players: list[int]
) -> Room:
    """A room after all checks; RoomError says what is wrong."""
    if len(players) != 1:
        raise RoomError(f"a room needs exactly one player, found {len(players)}")
    if not boxes or boxes.bit_count() != targets.bit_count():
        raise RoomError(
            f"as many boxes as targets are needed, at least one: {boxes.bit_count()} boxes, "
            f"{targets.bit_count()} targets"
        )
    room = Room(height, width, walls, targets, boxes, players[0])
    border = sum(
        1 << r * width + c
        for r in range(height)
        for c in range(width)
        if r in (0, height - 1) or c in (0, width - 1)
    )
    # what the player could ever reach, boxes aside, must not touch the border
    open_cells = _reachable(room, border) & border
    if open_cells:
        cell = next(cells(open_cells))
        raise RoomError(f"the wall is open at row {cell // width}, column {cell % width}")
    outside = (boxes | targets) & ~_reachable(room, border)
    if outside:
        cell = next(cells(outside))
        raise RoomError(
            f"the box or target at row {cell // width}, column {cell % width} is walled off "
            "from the player"
        )
    return room


def _reachable(room: Room, border: int) -> int:
    """Cells connected to the player through anything but walls, stopping at the border."""
    free = room.all_cells & ~room.walls
    width, region, grown = room.width, 0, 1 << room.player
    while grown != region:
        region = grown
        inner = grown & ~border
        grown |= (inner << 1 | inner >> 1 | inner << width | inner >> width) & free
    return region
