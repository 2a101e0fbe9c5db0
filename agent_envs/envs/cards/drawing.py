"""Pictures of the card games: our own cards and tables, drawn with Pillow.

Cards and tables are drawn :data:`_FINE` times larger and averaged down, once each; a picture pastes
them together. Everything is cached by what it shows and comes as read-only arrays, the same bytes
each time. The only font is Pillow's built-in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from agent_envs.core.visual import pillow

Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]

_FINE = 4
_FRAMES = 128  # pictures kept per game: 35 MB at 300 pixels
_UNIT = 300  # lengths below are for pictures of this size

FELT, FELT_EDGE, RAIL, PANEL = (22, 92, 62), (15, 70, 47), (86, 54, 32), (10, 54, 36)
PAPER, PAPER_EDGE, RED, BLACK = (252, 250, 243), (176, 170, 158), (190, 24, 46), (30, 30, 38)
CREAM, PALE, GOLD, ROSE = (250, 243, 222), (176, 206, 188), (247, 202, 84), (255, 158, 140)
BACK, BACK_LINE = (38, 66, 128), (150, 174, 226)
WHITE, INK, GREY = (255, 255, 255), (32, 34, 44), (110, 114, 126)
BLUE, ORANGE = (0, 104, 190), (212, 96, 0)


def _pil() -> Any:
    return pillow("a picture of a card game")


@lru_cache(maxsize=256)
def _font(pixels: int) -> Any:
    return _pil().ImageFont.load_default(size=max(pixels, 4))


def _frozen(image: Any) -> np.ndarray:
    array = np.array(image.convert("RGB"), dtype=np.uint8)
    array.setflags(write=False)
    return array


def _write(
    draw: Any, at: Point, text: str, pixels: float, colour: Colour, *, bold: float = 0.0, anchor: str = "mm"
) -> None:  # fmt: skip
    """Text around ``at``; the built-in font has one weight, so bold is an outline of the ink."""
    stroke = {"stroke_width": round(pixels * bold), "stroke_fill": colour} if bold else {}
    draw.text(at, text, font=_font(round(pixels)), fill=colour, anchor=anchor, **stroke)


def _fitting(text: str, pixels: float, width: float) -> float:
    """The largest size up to ``pixels`` at which ``text`` is no wider than ``width``."""
    length = _font(round(pixels)).getlength(text)
    return pixels if length <= width else math.floor(pixels * width / length)


# -- suits -------------------------------------------------------------------------------------


def _disc(draw: Any, x: float, y: float, radius: float, colour: Colour) -> None:
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def _lobes(x: float, y: float, r: float, up: float) -> list[Point]:
    """The outline of a heart (``up`` = 1), or of a spade's leaf (-1)."""
    points = []
    for step in range(72):
        t = math.tau * step / 72
        across = 16 * math.sin(t) ** 3
        along = sum(f * math.cos(k * t) for k, f in ((1, 13), (2, -5), (3, -2), (4, -1)))
        points.append((x + r * across / 16, y - up * r * (along + 2.5) / 16))
    return points


def _stem(draw: Any, x: float, y: float, r: float, colour: Colour) -> None:
    draw.polygon([(x, y), (x - 0.45 * r, y + r), (x + 0.45 * r, y + r)], fill=colour)


def _heart(draw: Any, x: float, y: float, r: float, colour: Colour) -> None:
    draw.polygon(_lobes(x, y, r, 1), fill=colour)


def _diamond(draw: Any, x: float, y: float, r: float, colour: Colour) -> None:
    draw.polygon([(x, y - r), (x + 0.78 * r, y), (x, y + r), (x - 0.78 * r, y)], fill=colour)


def _spade(draw: Any, x: float, y: float, r: float, colour: Colour) -> None:
    draw.polygon(_lobes(x, y - 0.1 * r, 0.95 * r, -1), fill=colour)
    _stem(draw, x, y, r, colour)


def _club(draw: Any, x: float, y: float, r: float, colour: Colour) -> None:
    for dx, dy in ((0, -0.52), (-0.5, 0.2), (0.5, 0.2)):
        _disc(draw, x + dx * r, y + dy * r, 0.47 * r, colour)
    _disc(draw, x, y, 0.25 * r, colour)
    _stem(draw, x, y, r, colour)


_SUITS: dict[str, tuple[Callable[[Any, float, float, float, Colour], None], Colour]] = {
    "H": (_heart, RED),
    "D": (_diamond, RED),
    "S": (_spade, BLACK),
    "C": (_club, BLACK),
}

# -- cards -------------------------------------------------------------------------------------

RATIO = 1.42  # a card's height to its width


@lru_cache(maxsize=512)
def _card(card: str, width: int, dimmed: bool = False) -> Any:
    """A card's picture; the empty name is one that lies face down."""
    w, h = width * _FINE, round(width * RATIO) * _FINE
    image = _pil().Image.new("RGBA", (w, h))
    draw = _pil().ImageDraw.Draw(image)
    shape = (0, 0, w - 1, h - 1)
    draw.rounded_rectangle(shape, w * 0.1, fill=PAPER, outline=PAPER_EDGE, width=max(w // 60, 1))
    if card:
        _face(image, draw, card)
    else:
        _weave(draw, w, h)
    image = image.reduce(_FINE)
    if dimmed:
        image.putalpha(image.getchannel("A").point(lambda alpha: alpha * 2 // 5))
    return image


def _face(image: Any, draw: Any, card: str) -> None:
    w, h = image.size
    pip, colour = _SUITS[card[0]]
    rank = "10" if card[1] == "T" else card[1]
    corner = 0.17 * w
    _write(draw, (corner, 0.15 * w), rank, 0.24 * w, colour, bold=0.035)
    pip(draw, corner, 0.37 * w, 0.085 * w, colour)
    half = image.crop((0, 0, w // 2, round(0.5 * w))).rotate(180)
    image.paste(half, (w - w // 2, h - round(0.5 * w)), _ink(half))
    _write(draw, (w / 2, 0.43 * h), rank, 0.52 * w, colour, bold=0.03)
    pip(draw, w / 2, 0.73 * h, 0.16 * w, colour)


def _ink(image: Any) -> Any:
    """Where a piece of a card's face is darker than paper."""
    return image.convert("L").point(lambda level: 255 * (level < 200))


def _weave(draw: Any, w: int, h: int) -> None:
    """A card's back: a lattice of diamonds in a frame."""
    edge, step = w * 0.09, w * 0.115
    across, down = round((w - 2 * edge) / step), round((h - 2 * edge) / step)
    draw.rounded_rectangle((edge, edge, w - edge, h - edge), w * 0.05, fill=BACK)
    for i in range(1, across):
        for j in range(1, down):
            if (i + j) % 2 == 0:
                x = edge + i * (w - 2 * edge) / across
                y = edge + j * (h - 2 * edge) / down
                _diamond(draw, x, y, step * 0.62, BACK_LINE)


def _row(image: Any, cards: Sequence[str], dimmed: Sequence[bool], width: float, y: float) -> None:
    """Cards side by side around the middle, overlapping where there are many; ``y`` is their top."""
    size, width = image.size[0], round(width)
    step = width * 1.12
    if len(cards) > 1:
        step = min(step, (0.92 * size - width) / (len(cards) - 1))
    left = (size - width - step * (len(cards) - 1)) / 2
    for i, (card, dim) in enumerate(zip(cards, dimmed, strict=True)):
        picture = _card(card, width, dim)
        image.paste(picture, (round(left + i * step), round(y)), picture)


# -- tables ------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _table(size: int, panel: tuple[int, int, int, int] | None, rim: Colour) -> Any:
    """Green felt in a wooden rail, with a darker panel where there is one."""
    fine = size * _FINE
    u = fine / _UNIT
    image = _pil().Image.new("RGB", (fine, fine), RAIL)
    draw = _pil().ImageDraw.Draw(image)
    for inset, colour in ((5, FELT_EDGE), (8, FELT)):
        box = (inset * u, inset * u, fine - 1 - inset * u, fine - 1 - inset * u)
        draw.rounded_rectangle(box, 14 * u, fill=colour)
    if panel is not None:
        left, top, right, bottom = (edge * u for edge in panel)
        box = left, top, right, bottom
        draw.rounded_rectangle(box, 9 * u, fill=PANEL, outline=rim, width=round(1.6 * u))
    return image.reduce(_FINE)


def _canvas(size: int, panel: tuple[int, int, int, int] | None, rim: Colour = PALE) -> Any:
    image = _table(size, panel, rim).copy()
    return image, _pil().ImageDraw.Draw(image), size / _UNIT


_FORMULA = (20, 214, 280, 270)


@lru_cache(maxsize=_FRAMES)
def points_picture(
    size: int, target: int, cards: tuple[str, ...], used: tuple[bool, ...],
    formula: tuple[str, ...], result: str | None, won: bool,
) -> np.ndarray:  # fmt: skip
    """EZPoints and Points24.

    Args:
        size: pixels of a side.
        target: the number to make.
        cards: the deal.
        used: which of them the formula holds; they are dimmed.
        formula: entries, a blank for a refused one.
        result: what ``=`` gave, None before.
        won: the result counts.
    """
    rim, colour = (PALE, CREAM) if result is None else (GOLD, GOLD) if won else (ROSE, ROSE)
    image, draw, u = _canvas(size, _FORMULA, rim)
    _write(draw, (150 * u, 32 * u), f"Make {target}", 25 * u, CREAM)
    width = 62.0 if len(cards) > 2 else 88.0
    _row(image, cards, used, width * u, (129 - width * RATIO / 2) * u)
    shown = _spelled(formula) + ("" if result is None else f" = {result}")
    pixels = _fitting(shown, 31 * u, 240 * u)
    _write(draw, (150 * u, 242 * u), shown, pixels, colour)
    return _frozen(image)


def _spelled(formula: tuple[str, ...]) -> str:
    """The entries in a row, apart where they would run together: ``2 4`` is not ``24``."""
    text, before = "", "("
    for entry in formula:
        shown = "_" if entry == " " else entry
        alike = shown.isdecimal() == before.isdecimal() and not {shown, before} & {"(", ")"}
        text += " " + shown if text and (alike or "_" in (shown, before)) else shown
        before = shown
    return text


@lru_cache(maxsize=_FRAMES)
def blackjack_picture(
    size: int, player: tuple[str, ...], dealer: tuple[str, ...], verdict: str
) -> np.ndarray:
    """Blackjack: the dealer's cards above, the player's below.

    Args:
        size: pixels of a side.
        player: the player's cards.
        dealer: those of the dealer in sight; a lone one has one face down beside it.
        verdict: how it ended, empty before.
    """
    image, draw, u = _canvas(size, None)
    row = dealer if len(dealer) > 1 else (*dealer, "")
    _write(draw, (22 * u, 24 * u), "Dealer", 17 * u, CREAM, anchor="lm")
    _write(draw, (22 * u, 276 * u), "You", 17 * u, CREAM, anchor="lm")
    _row(image, row, (False,) * len(row), 66 * u, 38 * u)
    _row(image, player, (False,) * len(player), 66 * u, 168 * u)
    colour = GOLD if verdict == "You win." else CREAM
    _write(draw, (150 * u, 150 * u), verdict, 21 * u, colour)
    return _frozen(image)


# -- the number line ---------------------------------------------------------------------------

_LEFT, _RIGHT, _HEIGHT = 32, 268, 216
_TICKS = 10  # labelled numbers at most, beside 0


@lru_cache(maxsize=_FRAMES)
def number_line_picture(size: int, position: int, target: int, end: int) -> np.ndarray:
    """Two lines of text above a line with a ring at the target and a disc at the position."""
    fine = size * _FINE
    u = fine / _UNIT
    image = _pil().Image.new("RGB", (fine, fine), WHITE)
    draw = _pil().ImageDraw.Draw(image)
    _write(draw, (150 * u, 64 * u), f"Target: {target}", 38 * u, ORANGE, bold=0.02)
    _write(draw, (150 * u, 120 * u), f"Current: {position}", 38 * u, BLUE, bold=0.02)
    _axis(draw, u, end)
    x, y = _place(target, end) * u, _HEIGHT * u
    draw.ellipse(
        (x - 13 * u, y - 13 * u, x + 13 * u, y + 13 * u), outline=ORANGE, width=round(4 * u)
    )
    _disc(draw, _place(position, end) * u, y, 7 * u, BLUE)
    return _frozen(image.reduce(_FINE))


def _place(number: int, end: int) -> float:
    return _LEFT + (_RIGHT - _LEFT) * number / end


def _axis(draw: Any, u: float, end: int) -> None:
    y, thick = _HEIGHT * u, round(2.4 * u)
    draw.line((_LEFT * u, y, _RIGHT * u, y), fill=INK, width=thick)
    step = -(-end // _TICKS)
    for number in range(0, end + 1, step):
        x = _place(number, end) * u
        draw.line((x, y - 6 * u, x, y + 6 * u), fill=INK, width=thick)
        _write(
            draw, (x, y + 29 * u), str(number), 17 * u if end < 1000 else 11 * u, GREY, bold=0.02
        )
