"""Draw the contact sheets of the visual environments: ``python docs/contact_sheets.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import agent_envs

DOCS = Path(__file__).resolve().parent
GAP, LABEL = 14, 34
Shot = tuple[dict[str, Any] | None, list[str]]
"""Explicit start (None: seed 1) and the actions up to the picture."""


def line(start: int, target: int, maximum: int = 5) -> dict[str, Any]:
    return {"start": start, "target": target, "max_position": maximum}


def hand(*cards: str) -> dict[str, Any]:
    return {"cards": list(cards)}


CARDS: dict[str, list[Shot]] = {
    "NumberLine": [
        (line(0, 4), []),
        (line(1, 4), ["+", "+"]),
        (line(4, 5), ["+"]),
        (line(3, 18, 20), []),
    ],
    "EZPoints": [
        (hand("H5", "C7"), []),
        (hand("DK", "S2"), ["10", "+"]),
        (hand("D3", "S4"), list("3*4=")),
        (hand("C8", "H4"), ["8", "7", "8", "="]),
    ],
    "Points24": [
        (hand("H3", "D8", "S3", "C8"), list("8/(3-")),
        (hand("DT", "CQ", "HA", "SK"), ["(", "10", "-", "9", "10"]),
        (hand("H3", "D8", "S3", "C8"), list("8/(3-8/3)=")),
        (
            hand("CJ", "SK", "D9", "HT"),
            ["(", "10", "+", "10", ")", "/", "(", "9", "*", "10", ")", "="],
        ),
    ],
    "Blackjack": [
        (None, []),
        ({"player": [10, 1], "dealer": [9, 6]}, []),
        ({"player": [5, 2], "dealer": [10, 7], "draws": [1, 2, 3, 4, 2]}, ["hit"] * 5),
        ({"player": [10, 9], "dealer": [6, 10], "draws": [9]}, ["stand"]),
    ],
}


def shot(name: str, start: dict[str, Any] | None, actions: list[str], **options: Any) -> np.ndarray:
    """The picture after ``actions``."""
    env: Any = gymnasium.make(f"AgentEnv/{name}-v0", obs_mode="image", **options).unwrapped
    observation, _ = env.reset(seed=1, options=start)
    for action in actions:
        observation, *_ = env.step(action)
    return observation  # type: ignore[no-any-return]


def played(name: str, seed: int, share: float, tile_size: int) -> np.ndarray:
    """A room after ``share`` of the expert's solution."""
    env: Any = gymnasium.make(
        f"AgentEnv/{name}-v0", obs_mode="image", tile_size=tile_size
    ).unwrapped
    frames = [env.reset(seed=seed)[0]]
    while not (env.terminated or env.truncated):
        frames.append(env.step(env.expert_action())[0])
    return frames[round(share * (len(frames) - 1))]  # type: ignore[no-any-return]


def sheet(rows: dict[str, list[np.ndarray]], path: Path) -> None:
    """Rows of pictures of one size, each with its title."""
    size = next(iter(rows.values()))[0].shape[0]
    width = max(map(len, rows.values())) * (size + GAP) + GAP
    image = Image.new("RGB", (width, len(rows) * (size + GAP + LABEL) + GAP), (236, 236, 240))
    draw, font, top = ImageDraw.Draw(image), ImageFont.load_default(size=20), GAP
    for title, pictures in rows.items():
        draw.text((GAP, top), title, font=font, fill=(40, 40, 50))
        for i, picture in enumerate(pictures):
            image.paste(Image.fromarray(picture), (GAP + i * (size + GAP), top + LABEL))
        top += size + GAP + LABEL
    image.save(path, optimize=True)


def main() -> None:
    cards = {
        f"AgentEnv/{name}-v0": [shot(name, start, actions) for start, actions in shots]
        for name, shots in CARDS.items()
    }
    sheet(cards, DOCS / "environments" / "cards_contact_sheet.png")
    rooms = {
        f"AgentEnv/Sokoban-{size}-v0": [
            played(f"Sokoban-{size}", 5 + i, i / 3, tile) for i in range(4)
        ]
        for size, tile in (("6x6-1box", 40), ("6x6-2box", 40), ("8x8-3box", 30), ("10x10-4box", 24))
    }
    sheet(rooms, DOCS / "environments" / "sokoban_contact_sheet.png")
    print(f"drawn with agent-envs {agent_envs.__version__}")


if __name__ == "__main__":
    main()
