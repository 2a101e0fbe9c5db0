"""``AgentEnv/Points24-v0``."""

from __future__ import annotations

import random
from typing import ClassVar

from agent_envs.core.profile import Profile
from agent_envs.envs.cards.deck import draw_card
from agent_envs.envs.cards.points import PointsGame
from agent_envs.envs.cards.profile import POINTS24


class Points24Env(PointsGame):
    """Make 24 of four cards.

    ### Actions
    The number of an unused card, ``+ - * /`` (or U+2212, U+00D7, U+00F7), ``(``, ``)`` and ``=``;
    blanks around them are ignored. One action is one entry: ``10`` is the card 10, never 1;
    ``10+``, ``1 0`` and ``11`` are nothing. Any other text, and a number that no unused card has,
    is refused: a counted turn that appends a blank to the formula. An agent may answer in tags (the
    default) or in JSON (``JsonParser``).

    ### Observations
    The cards with their numbers, the unused numbers and the formula so far (``_`` for a refused
    entry): as text, as a picture of ``image_size`` pixels, or both (``obs_mode``).
    ``info["formula"]`` is the formula as text with one blank per refused entry; ``cards``,
    ``numbers`` (lists) and ``solvable`` (bool) describe the deal.

    ### Rewards
    ``=`` pays 10 if the formula makes exactly 24 with all four cards used, else -1 (also for what
    is no formula, and for a division by zero). -1 for each refused entry, and for any action when
    the formula is full; else 0. All times ``reward_scale``.

    ### Start and end
    ``reset(seed=s)`` plays the seed's task; ``options={"task_index": i}`` the i-th of the split;
    ``options={"cards": ["H3", "D8", "S3", "C8"]}`` that deal, solvable or not (suit C D H S, rank
    A 2-9 T or 10 J Q K). Cards are drawn with replacement. ``terminated`` at ``=``, ``truncated``
    by the action after the 21st entry (or after ``max_steps``). Formulas are exact fractions: an
    operator must stand between two numbers; two operators in a row and a sign are no formula.

    ### Arguments
    * ``solvable_only``: True, deals without a solution are drawn again; False, they are dealt
      (26.9 % with faces as 10) and flagged by ``info["solvable"]``.
    * ``treat_face_cards_as_10``: True; False, jack, queen and king are 11, 12 and 13.
    * ``compat``: ``"original"`` allows a sign before a number, as the original's ``eval`` did; its
      other faults (digits glued together, powers, floats) are not brought back.
    * ``split``: ``train`` (endless) or ``test`` (200 deals of a stream of its own).
    * ``max_steps``: None, only the game's own limit (22).
    * ``obs_mode``: ``text``, ``image`` or ``both``; ``image_size``: 300.
    * ``reward_scale``, ``render_mode`` (``ansi``, ``rgb_array``, ``human``).

    ### Data
    None: deals are made from their number. After Points24 of gym-cards (RL4VLM).

    ### Differences from the original
    * Formulas are read by a small grammar and computed with exact fractions, not by ``eval``: no powers, no
      digits glued together, and 8 / (3 - 8 / 3) is 24.
    * Only deals with a solution are dealt (``solvable_only=False``: all).

    ### Access
    * reads: nothing outside the package.
    * writes: nothing.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = POINTS24
    game_key: ClassVar[int] = 0x3234
    target: ClassVar[int] = 24
    hand: ClassVar[int] = 4
    keys: ClassVar[str] = "+-*/()"
    entries: ClassVar[int] = 20

    def _draw(self, stream: random.Random) -> tuple[str, ...]:
        while True:  # almost three quarters of all deals have a solution
            cards = tuple(draw_card(stream) for _ in range(self.hand))
            if self._can_solve(self._values(cards)):
                return cards
