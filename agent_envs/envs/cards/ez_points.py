"""``AgentEnv/EZPoints-v0``."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import ClassVar

from agent_envs.core.profile import Profile
from agent_envs.envs.cards.deck import RANKS, below, card_value, draw_card
from agent_envs.envs.cards.points import PointsGame
from agent_envs.envs.cards.profile import EZ_POINTS


class EZPointsEnv(PointsGame):
    """Make 12 of two cards, by sum or product.

    ### Actions
    The number of an unused card, ``+``, ``*`` (or U+00D7) and ``=``; blanks around them are ignored.
    One action is one entry: ``10`` is the card 10, never 1; ``10+``, ``1 0`` and ``11`` are
    nothing. Any other text, and a number that no unused card has, is refused: a counted turn that
    appends a blank to the formula. An agent may answer in tags (the default) or in JSON
    (``JsonParser``).

    ### Observations
    The cards with their numbers, the unused numbers and the formula so far (``_`` for a refused
    entry): as text, as a picture of ``image_size`` pixels, or both (``obs_mode``).
    ``info["formula"]`` is the formula as text with one blank per refused entry; ``cards``,
    ``numbers`` (lists) and ``solvable`` (bool) describe the deal.

    ### Rewards
    ``=`` pays 10 if the formula makes 12 with both cards used, else -1. -1 for each refused entry,
    and for any action when the formula is full; else 0. All times ``reward_scale``.

    ### Start and end
    ``reset(seed=s)`` plays the seed's task; ``options={"task_index": i}`` the i-th of the split;
    ``options={"cards": ["H3", "D9"]}`` that deal (suit C D H S, rank A 2-9 T or 10 J Q K).
    ``terminated`` at ``=``, ``truncated`` by the action after the sixth entry (or after
    ``max_steps``). Formulas are exact: an operator must stand between two numbers, and a sign
    before a number is refused, at ``=``, as no formula.

    ### Arguments
    * ``solvable_only``: True, the second card completes the first to 12 (by sum or by product, a
      fair coin where both can); False, any two cards.
    * ``treat_face_cards_as_10``: True; False, jack, queen and king are 11, 12 and 13.
    * ``compat``: ``"original"`` allows a sign before a number, as the original's ``eval`` did.
    * ``split``: ``train`` (endless) or ``test`` (200 deals of a stream of its own; with so few
      pairs of cards they occur in ``train`` too).
    * ``max_steps``: None, only the game's own limit (7).
    * ``obs_mode``: ``text``, ``image`` or ``both``; ``image_size``: 300.
    * ``reward_scale``, ``render_mode`` (``ansi``, ``rgb_array``, ``human``).

    ### Data
    None: deals are made from their number. After EZPoints of gym-cards (RL4VLM).

    ### Differences from the original
    * Formulas are read by a small grammar and computed with fractions, not by ``eval``: digits are not glued
      together, a sign is no number. ``compat="original"`` allows the sign.
    * The first card of a solvable deal is 2 to 10: an ace cannot be completed to 12.

    ### Access
    * reads: nothing outside the package.
    * writes: nothing.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = EZ_POINTS
    game_key: ClassVar[int] = 0x455A
    target: ClassVar[int] = 12
    hand: ClassVar[int] = 2
    keys: ClassVar[str] = "+*"
    entries: ClassVar[int] = 5

    def _draw(self, stream: random.Random) -> tuple[str, ...]:
        ranks, seconds = _choices(self.target, self.treat_face_cards_as_10)
        first = draw_card(stream, [rank for n in seconds for rank in ranks[n]])
        numbers = seconds[card_value(first, self.treat_face_cards_as_10)]
        return first, draw_card(stream, ranks[numbers[below(stream, len(numbers))]])


@lru_cache(maxsize=2)
def _choices(target: int, faces_as_10: bool) -> tuple[dict[int, str], dict[int, list[int]]]:
    """The ranks of each number, and the numbers that complete each: by sum, by product."""
    ranks: dict[int, str] = {}
    for rank in RANKS:
        number = card_value("S" + rank, faces_as_10)
        ranks[number] = ranks.get(number, "") + rank
    seconds = {}
    for n in ranks:
        wanted = [target - n] + ([target // n] if target % n == 0 else [])
        if found := [number for number in wanted if number in ranks]:
            seconds[n] = found
    return ranks, seconds
