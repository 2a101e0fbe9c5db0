"""Pictures of rooms: seven tiles drawn once, frames put together by index.

Tiles are told apart by shape and by brightness, not by hue alone: walls are bricks, targets rings,
boxes crates with a cross (a box on its target is bright and has a filled centre), the player is a
round figure. Colours are from the Okabe-Ito palette, which colour-blind people can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from agent_envs.core.visual import pillow
from agent_envs.envs.sokoban.room import (
    BOX,
    BOX_ON_TARGET,
    FLOOR,
    PLAYER,
    PLAYER_ON_TARGET,
    TARGET,
    WALL,
)

_SCALE = 4  # tiles are drawn larger and reduced, which smooths their edges
_GROUND, _GROUND_EDGE = (232, 228, 216), (220, 215, 200)
_BRICK, _MORTAR = (84, 92, 104), (58, 64, 74)
_BLUE, _ORANGE, _YELLOW, _GREEN = (0, 114, 178), (213, 120, 20), (240, 228, 66), (0, 158, 115)
_DARK = (60, 40, 20)


class _Pen:
    """Shapes in units of a tile (0 to 1)."""

    def __init__(self, size: int) -> None:
        pil = pillow("drawing Sokoban")
        self.size, self._pil = size, pil
        self.image = pil.Image.new("RGB", (size * _SCALE, size * _SCALE), _GROUND)
        self._draw = pil.ImageDraw.Draw(self.image)

    def _box(self, *corners: float) -> list[float]:
        return [c * self.size * _SCALE for c in corners]

    def rectangle(self, *corners: float, fill: Any, radius: float = 0.0) -> None:
        self._draw.rounded_rectangle(self._box(*corners), radius * self.size * _SCALE, fill=fill)

    def ellipse(self, *corners: float, fill: Any) -> None:
        self._draw.ellipse(self._box(*corners), fill=fill)

    def line(self, *points: float, fill: Any, width: float) -> None:
        self._draw.line(self._box(*points), fill=fill, width=round(width * self.size * _SCALE))

    def array(self) -> np.ndarray:
        small = self.image.resize((self.size, self.size), self._pil.Image.Resampling.BOX)
        return np.asarray(small, np.uint8)


def _ground(pen: _Pen) -> None:
    pen.rectangle(0, 0, 1, 1, fill=_GROUND_EDGE)
    pen.rectangle(0.03, 0.03, 0.97, 0.97, fill=_GROUND)


def _wall(pen: _Pen) -> None:
    pen.rectangle(0, 0, 1, 1, fill=_MORTAR)
    for row, shift in enumerate((0.0, -0.25, 0.0, -0.25)):
        for column in range(3):
            left, top = column * 0.5 + shift, row * 0.25
            pen.rectangle(left + 0.03, top + 0.03, left + 0.47, top + 0.22, fill=_BRICK)


def _target(pen: _Pen) -> None:
    _ground(pen)
    pen.ellipse(0.2, 0.2, 0.8, 0.8, fill=_BLUE)
    pen.ellipse(0.3, 0.3, 0.7, 0.7, fill=_GROUND)
    pen.ellipse(0.42, 0.42, 0.58, 0.58, fill=_BLUE)


def _crate(pen: _Pen, colour: Any) -> None:
    pen.rectangle(0.1, 0.1, 0.9, 0.9, fill=_DARK, radius=0.08)
    pen.rectangle(0.15, 0.15, 0.85, 0.85, fill=colour, radius=0.05)
    pen.line(0.2, 0.2, 0.8, 0.8, fill=_DARK, width=0.07)
    pen.line(0.2, 0.8, 0.8, 0.2, fill=_DARK, width=0.07)


def _box(pen: _Pen) -> None:
    _ground(pen)
    _crate(pen, _ORANGE)


def _box_on_target(pen: _Pen) -> None:
    _ground(pen)
    _crate(pen, _YELLOW)
    pen.ellipse(0.32, 0.32, 0.68, 0.68, fill=_DARK)
    pen.ellipse(0.38, 0.38, 0.62, 0.62, fill=_BLUE)


def _figure(pen: _Pen) -> None:
    pen.ellipse(0.36, 0.12, 0.64, 0.4, fill=_DARK)
    pen.rectangle(0.28, 0.42, 0.72, 0.88, fill=_DARK, radius=0.18)
    pen.ellipse(0.4, 0.16, 0.6, 0.36, fill=_GROUND)
    pen.rectangle(0.33, 0.47, 0.67, 0.83, fill=_GREEN, radius=0.13)


def _player(pen: _Pen) -> None:
    _ground(pen)
    _figure(pen)


def _player_on_target(pen: _Pen) -> None:
    _target(pen)
    _figure(pen)


_TILES = {
    WALL: _wall,
    FLOOR: _ground,
    TARGET: _target,
    BOX_ON_TARGET: _box_on_target,
    BOX: _box,
    PLAYER: _player,
    PLAYER_ON_TARGET: _player_on_target,
}


@lru_cache(maxsize=8)
def tiles(size: int) -> np.ndarray:
    """All tiles by code, uint8 of shape (7, size, size, 3)."""
    drawn = []
    for code in range(len(_TILES)):
        pen = _Pen(size)
        _TILES[code](pen)
        drawn.append(pen.array())
    return np.stack(drawn)


def draw(codes: Sequence[int], height: int, width: int, size: int) -> np.ndarray:
    """A room of codes (0 to 6, row by row) as read-only uint8 (height * size, width * size, 3)."""
    grid = np.array(codes, np.intp).reshape(height, width)
    rows = _tile_rows(size)[grid].transpose(0, 2, 1, 3)
    frame = np.ascontiguousarray(rows).view(np.uint8).reshape(height * size, width * size, 3)
    frame.flags.writeable = False
    return frame


@lru_cache(maxsize=8)
def _tile_rows(size: int) -> np.ndarray:
    """:func:`tiles` by pixel rows, in the widest words that a row divides into: fewer to move."""
    rows = tiles(size).reshape(len(_TILES), size, size * 3)
    word = next(
        w for w in (np.uint64, np.uint32, np.uint16, np.uint8) if size * 3 % w(0).nbytes == 0
    )
    return np.ascontiguousarray(rows).view(word)


def redraw(
    frame: np.ndarray, old: Sequence[int], new: Sequence[int], width: int, size: int
) -> np.ndarray:
    """A new frame that differs from ``frame`` only where the codes do."""
    if old == new:
        return frame
    changed = frame.copy()
    by_code = tiles(size)
    for i, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            top, left = i // width * size, i % width * size
            changed[top : top + size, left : left + size] = by_code[after]
    changed.flags.writeable = False
    return changed
