"""Observations as arrays: what a network sees instead of a text.

A feature maker is anything with a ``space`` and a call ``(observations, infos) -> array``, for many
replicas at once: ``observations`` is a sequence, ``infos`` holds a column per key (as the group's
vector infos do) and, in ``infos["history"]``, the actions that each replica has taken so far; the
array has one row per replica.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from gymnasium.spaces import Box, Dict

from agent_envs.core.actions import Actions
from agent_envs.core.env import AgentEnv, Obs
from agent_envs.core.errors import OptionError, one_of

Infos = Mapping[str, Any]

_TARGET, _BOX_ON_TARGET, _BOX, _PLAYER = 2, 3, 4, 5  # the codes of info["room_state"]; 0 is wall
_WORDS = re.compile(r"[^\W_]+")


class Features(Protocol):
    """Turns observations and infos into rows of ``space``."""

    @property
    def space(self) -> Box: ...

    def __call__(self, observations: Sequence[Obs], infos: Infos) -> np.ndarray: ...


@dataclass(frozen=True)
class Image:
    """The picture as it is: uint8 (height, width, 3). For ``obs_mode`` ``image`` and ``both``."""

    space: Box

    def __call__(self, observations: Sequence[Obs], infos: Infos) -> np.ndarray:
        return np.stack([o["image"] if isinstance(o, Mapping) else o for o in observations])


@dataclass(frozen=True)
class RoomPlanes:
    """Four planes of ``info["room_state"]``: walls, targets, boxes, player; uint8 0 or 1.

    ``room_state`` shows a player on a target as a player. There are as many targets as boxes, so a
    target that is missing from the count lies under the player.
    """

    height: int
    width: int

    @property
    def space(self) -> Box:
        # 0 to 1, not 0 to 255: SB3 would take the planes for a picture and scale them
        return Box(0, 1, (4, self.height, self.width), np.uint8)

    def __call__(self, observations: Sequence[Obs], infos: Infos) -> np.ndarray:
        codes = np.array(list(infos["room_state"]), np.uint8)
        planes = np.empty((len(codes), 4, self.height, self.width), np.uint8)
        planes[:, 0] = codes == 0
        planes[:, 1] = targets = (codes == _TARGET) | (codes == _BOX_ON_TARGET)
        planes[:, 2] = boxes = (codes == _BOX) | (codes == _BOX_ON_TARGET)
        planes[:, 3] = player = codes == _PLAYER
        hidden = targets.sum((1, 2)) < boxes.sum((1, 2))
        planes[:, 1] |= player & hidden[:, None, None]
        return planes


@dataclass(frozen=True)
class LineOneHots:
    """``info["position"]`` and ``info["target"]``, each as a one-hot vector over 0 to ``end``."""

    end: int

    @property
    def space(self) -> Box:
        return Box(0, 1, (2 * (self.end + 1),), np.float32)

    def __call__(self, observations: Sequence[Obs], infos: Infos) -> np.ndarray:
        numbers = np.stack([np.asarray(infos[key], np.int64) for key in ("position", "target")], 1)
        rows: np.ndarray = np.eye(self.end + 1, dtype=np.float32)[numbers]
        return rows.reshape(len(numbers), -1)


@dataclass(frozen=True)
class HashedText:
    """Task and observation as hashed words and, for each offered action, its words.

    A row holds ``2 * size`` numbers for task and observation, then ``action_size`` for each of
    ``num_actions`` actions: a 1 (0 where there is no such action); the share of its words that occur
    in the task; c / (c + 1) where it was taken c times in this episode; and its hashed words. Words
    and pairs of neighbours are hashed by CRC-32 to a column and a sign, so features are the same in
    every process.

    Args:
        size: columns of task and of observation.
        num_actions: how many admissible actions are shown, in their order; 0 for none.
        action_size: columns of an action, at least 4.
        hidden: actions that are not offered (``profile.hidden_actions``).
    """

    size: int = 128
    num_actions: int = 0
    action_size: int = 64
    hidden: tuple[str, ...] = ()

    @property
    def space(self) -> Box:
        width = 2 * self.size + self.num_actions * self.action_size
        return Box(-1, 1, (width,), np.float32)

    def __call__(self, observations: Sequence[Obs], infos: Infos) -> np.ndarray:
        rows = np.zeros((len(observations), *self.space.shape), np.float32)
        begin = 2 * self.size
        for row, observation, task, admissible, history in zip(
            rows,
            observations,
            infos["task"],
            infos["admissible_actions"],
            infos["history"],
            strict=True,
        ):
            row[: self.size] = hashed_words(task, self.size)
            row[self.size : begin] = hashed_words(_text(observation), self.size)
            if self.num_actions:
                actions = row[begin:].reshape(self.num_actions, self.action_size)
                offered = offers(admissible, self.hidden)[: self.num_actions]
                for cells, action in zip(actions, offered, strict=False):
                    count = history.count(action)
                    cells[:3] = 1, _shared(action, task), count / (count + 1)
                    cells[3:] = hashed_words(action, self.action_size - 3)
        return rows


def offers(admissible: Iterable[str] | None, hidden: tuple[str, ...]) -> Sequence[str]:
    """The admissible actions without hidden ones, in order; none where they are not enumerable."""
    if isinstance(admissible, Actions):
        return admissible.without(hidden)
    return [action for action in admissible or () if action not in hidden]


def _text(observation: Obs) -> str:
    return str(observation["text"] if isinstance(observation, Mapping) else observation)


@lru_cache(maxsize=1 << 14)
def hashed_words(text: str, size: int) -> np.ndarray:
    """Words and neighbouring pairs of ``text`` in ``size`` columns, of length 1 (read-only)."""
    words = _WORDS.findall(text.lower())
    row = np.zeros(size, np.float32)
    for token in (*words, *map(" ".join, pairwise(words))):
        code = crc32(token.encode("utf-8", "backslashreplace"))
        row[(code >> 1) % size] += 1 - 2 * (code & 1)
    length = np.linalg.norm(row)
    if length:
        row /= length
    row.flags.writeable = False
    return row


@lru_cache(maxsize=1 << 14)
def _shared(action: str, task: str) -> float:
    """Share of the action's words that occur in the task."""
    words = _WORDS.findall(action.lower())
    known = set(_WORDS.findall(task.lower()))
    return sum(word in known for word in words) / len(words) if words else 0.0


# -- by name ------------------------------------------------------------------------------------


def _room_planes(env: AgentEnv, info: Infos) -> Features:
    room = info["room_state"]
    return RoomPlanes(len(room), len(room[0]))


def _line(env: AgentEnv, info: Infos) -> Features:
    end = getattr(env, "max_position", None)
    if type(end) is not int:
        raise OptionError(f"{type(env).__name__} names no max_position: pass LineOneHots(end)")
    return LineOneHots(end)


# info keys that describe the whole state -> what is made of them
GRIDS: dict[tuple[str, ...], Callable[[AgentEnv, Infos], Features]] = {
    ("room_state",): _room_planes,
    ("position", "target"): _line,
}


def find_features(
    observation: str | Features | None, env: AgentEnv, num_actions: int | None
) -> Features:
    """The feature maker of a name, or of what the environment shows where none is given.

    Args:
        observation: ``image``, ``grid``, ``text``, a feature maker, or None.
        env: an environment of that kind; it is reset.
        num_actions: how many admissible actions are offered; None where the list is fixed.
    """
    if observation is not None and not isinstance(observation, str):
        return observation
    pictures = _picture_space(env)
    if observation is None:
        observation = "text" if pictures is None else "image"
        if observation == "text" and _grid(env) is not None:
            observation = "grid"
    one_of("observation", observation, ("image", "grid", "text"))
    if observation == "text":
        return HashedText(num_actions=num_actions or 0, hidden=env.profile.hidden_actions)
    if observation == "image":
        if pictures is None:
            raise OptionError(
                f"{_name(env)} shows no picture here: make it with obs_mode='image', or pass "
                "observation='text'"
            )
        return Image(pictures)
    found = _grid(env)
    if found is None:
        known = "; ".join(" and ".join(keys) for keys in GRIDS)
        raise OptionError(
            f"{_name(env)} has no numbers to make a grid of (info keys looked for: {known}); "
            "pass observation='text' or a feature maker of your own"
        )
    return found


def _picture_space(env: AgentEnv) -> Box | None:
    space = env.observation_space
    if isinstance(space, Dict):
        space = space.spaces.get("image", space)
    return space if isinstance(space, Box) else None


def _grid(env: AgentEnv) -> Features | None:
    _, info = env.reset(seed=0)
    for keys, make in GRIDS.items():
        if all(key in info for key in keys):
            return make(env, info)
    return None


def _name(env: AgentEnv) -> str:
    return env.spec.id if env.spec is not None else type(env).__name__
