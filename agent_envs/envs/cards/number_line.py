"""``AgentEnv/NumberLine-v0``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from agent_envs.core.actions import Actions
from agent_envs.core.env import Obs, Outcome
from agent_envs.core.errors import OptionError
from agent_envs.core.profile import Profile
from agent_envs.envs.cards.deck import below, read_number
from agent_envs.envs.cards.drawing import number_line_picture
from agent_envs.envs.cards.game import SIGNS, CardGame
from agent_envs.envs.cards.profile import NUMBER_LINE

_MOVES = {"+": 1, "-": -1}
_ACTIONS = Actions(_MOVES)

LONGEST = 10_000  # the largest max_position


class NumberLineEnv(CardGame):
    """Walk to a number, one step at a time.

    ### Actions
    ``+`` and ``-`` (or the minus sign U+2212) move by one and stop at the ends of the line; blanks
    around them are ignored. Any other text moves nothing and is a counted turn. An agent may answer
    in tags (the default) or in JSON (``JsonParser``).

    ### Observations
    The line's ends, the target and the current number: as text, as a picture of ``image_size``
    pixels, or both (``obs_mode``). ``info["position"]`` and ``info["target"]`` are ints.

    ### Rewards
    1 at the target, -1 where the distance did not shrink (a step away, a step against the end, any
    other text), else 0; times ``reward_scale``.

    ### Start and end
    ``reset(seed=s)`` plays the seed's task; ``options={"task_index": i}`` the i-th of the split;
    ``options={"start": a, "target": b, "max_position": m}`` that one (``max_position`` may be left
    out). Start and target are drawn uniformly among the unequal pairs. ``terminated`` at the target,
    ``truncated`` after 2 x ``max_position`` steps (or ``max_steps``, if smaller).

    ### Arguments
    * ``max_position``: 5; the line reaches from 0 to it.
    * ``split``: ``train`` (endless) or ``test`` (200 tasks of a stream of its own; with so few
      lines they occur in ``train`` too).
    * ``max_steps``: None, only the game's own limit.
    * ``obs_mode``: ``text``, ``image`` or ``both``; ``image_size``: 300.
    * ``reward_scale``, ``render_mode`` (``ansi``, ``rgb_array``, ``human``).

    ### Data
    None: tasks are made from their number. After NumberLine of gym-cards (RL4VLM), whose draw made
    the line's end a rarer target.

    ### Differences from the original
    * Start and target are drawn uniformly among unequal pairs; the original made the line's end a rarer
      target.
    * The minus sign U+2212 is read as ``-``.

    ### Access
    * reads: nothing outside the package.
    * writes: nothing.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = NUMBER_LINE
    start_options: ClassVar[tuple[str, ...]] = ("start", "target", "max_position")
    game_key: ClassVar[int] = 0x4E4C

    def __init__(self, *, max_position: int = 5, **options: Any) -> None:
        super().__init__(**options)
        self.max_position = read_number("max_position", max_position, 1, LONGEST)
        self._line = (0, 0, 0)
        self._position = 0

    @property
    def task(self) -> str:
        _, target, end = self._line
        return f"Get to {target} on the number line from 0 to {end}."

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        start, target, end = self._given(options)
        return f"given/{start} to {target} of {end}"

    def _given(self, options: Mapping[str, Any]) -> tuple[int, int, int]:
        for key in ("start", "target"):
            if key not in options:
                raise OptionError(
                    f"an explicit start needs both start and target; {key} is missing"
                )
        end = read_number(
            "max_position", options.get("max_position", self.max_position), 1, LONGEST
        )
        start = read_number("start", options["start"], 0, end)
        target = read_number("target", options["target"], 0, end)
        if start == target:
            raise OptionError(f"start and target must differ, both are {start}")
        return start, target, end

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        self._line = self._given(options) if options else self._draw(task_id)
        self._position, _, end = self._line
        self._limit_steps(2 * end)
        return self._see()

    def _draw(self, task_id: str) -> tuple[int, int, int]:
        stream, end = self._stream(task_id), self.max_position
        start, target = below(stream, end + 1), below(stream, end)
        return start, target + (target >= start), end

    def _act(self, action: str) -> Outcome:
        action = action.strip()
        move = _MOVES.get(SIGNS.get(action, action))
        if move is None:
            return Outcome(self._see(), -1.0, action_valid=False)
        _, target, end = self._line
        before = abs(target - self._position)
        self._position = min(max(self._position + move, 0), end)
        distance = abs(target - self._position)
        won = distance == 0
        reward = 1.0 if won else -1.0 if distance >= before else 0.0
        return Outcome(self._see(), reward, won, won)

    def admissible_actions(self) -> list[str]:
        return _ACTIONS

    def expert_action(self) -> str:
        """Straight to the target."""
        return "+" if self._position < self._line[1] else "-"

    def _extra_info(self) -> Mapping[str, Any]:
        return {"position": self._position, "target": self._line[1]}

    def _text(self) -> str:
        _, target, end = self._line
        return f"Target: {target}\nCurrent: {self._position}\nThe line goes from 0 to {end}."

    def _picture(self) -> np.ndarray:
        _, target, end = self._line
        return number_line_picture(self.image_size, self._position, target, end).copy()

    def _deal(self) -> list[Any]:
        return list(self._line)

    def _progress(self) -> Any:
        return self._position

    def _resume(self, progress: Any) -> None:
        self._position = read_number("position", progress, 0, self._line[2])
