"""``AgentEnv/Blackjack-v0``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count as counter
from typing import Any, ClassVar

import numpy as np

from agent_envs.core.actions import Actions
from agent_envs.core.env import Obs, Outcome
from agent_envs.core.errors import OptionError, flag
from agent_envs.core.profile import Profile
from agent_envs.envs.cards.deck import RANKS, SUITS, Shoe, card_value, draw_card, read_number
from agent_envs.envs.cards.drawing import blackjack_picture
from agent_envs.envs.cards.game import CardGame
from agent_envs.envs.cards.profile import BLACKJACK

LIMIT, DEALER_STANDS = 21, 17
NATURAL_PAYS = 1.5
_DRAWS_KEY = 0x424A44
_ACTIONS = Actions(("hit", "stand"))
# hard totals on which the expert stands, by the dealer's card; from 17 it always does
_STAND_FROM = {1: 17, 2: 13, 3: 13, 4: 12, 5: 12, 6: 12, 7: 17, 8: 17, 9: 17, 10: 17}
_instances = counter(1)


class BlackjackEnv(CardGame):
    """Beat the dealer: come closer to 21 without going over.

    ### Actions
    ``hit`` draws a card, ``stand`` ends the player's turn; in any case, blanks around them are
    ignored. Any other text changes nothing and is a counted turn. An agent may answer in tags (the
    default) or in JSON (``JsonParser``).

    ### Observations
    The player's cards with their total and the dealer's first card; the dealer's other cards only
    when the game is over. As text, as a picture of ``image_size`` pixels, or both (``obs_mode``).
    ``info["player"]`` and ``info["dealer"]`` list the values of the cards in sight: before the end
    ``dealer`` holds one. An ace is 1 in these lists; in totals it counts 11 where that fits.

    ### Rewards
    1 for a win, 0 for a draw, -1 for a loss, at the end; 0 before and for other text; times
    ``reward_scale``. ``info["score"]`` is 1, 0.5 and 0; an episode that never finishes returns 0.

    ### Start and end
    The deck is infinite: 13 ranks alike, so a value of 10 is four times as likely. ``reset(seed=s)``
    plays the seed's task, ``options={"task_index": i}`` the i-th of the split: the task decides the
    two cards of player and dealer, the seed all cards drawn later. ``options={"player": [..],
    "dealer": [..], "draws": [..]}`` starts from these values (1 to 10; the dealer's first is shown)
    and draws ``draws`` first. ``terminated`` when the player goes over 21 or stands (the dealer then
    draws up to 17 or more), ``truncated`` after ``max_steps``.

    ### Arguments
    * ``sab``: True, a player's 21 of two cards beats everything but a dealer's (Sutton and Barto);
      overrides ``natural``.
    * ``natural``: True with ``sab=False``: a winning 21 of two cards pays 1.5.
    * ``share_randomness``: True, cards drawn later follow from the seed alone, so the replicas of a
      group draw the same ones. False, each environment object mixes in its number, in the order in
      which its process made them; states carry it. The same script repeats the same cards, but
      the numbers depend on how a backend spreads replicas over processes.
    * ``split``: ``train`` (endless) or ``test`` (200 deals of a stream of its own; with so few
      deals they occur in ``train`` too).
    * ``max_steps``: 30; None for no limit.
    * ``obs_mode``: ``text``, ``image`` or ``both``; ``image_size``: 300.
    * ``reward_scale``, ``render_mode`` (``ansi``, ``rgb_array``, ``human``).

    ### Data
    None: deals are made from their number. After Blackjack of gym-cards (RL4VLM), in which ``info``
    gave the dealer's hidden card away.

    ### Differences from the original
    * ``info`` shows the dealer's hidden card only when the game is over (the original gave it away).
    * Other text is a counted turn, and the game is cut after 30: every episode ends.
    * The replicas of a group draw the same later cards (``share_randomness``).

    ### Access
    * reads: nothing outside the package.
    * writes: nothing.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = BLACKJACK
    start_options: ClassVar[tuple[str, ...]] = ("player", "dealer", "draws")
    game_key: ClassVar[int] = 0x424A

    def __init__(
        self,
        *,
        sab: bool = True,
        natural: bool = False,
        share_randomness: bool = True,
        max_steps: int | None = 30,
        **options: Any,
    ) -> None:
        for name, value in (
            ("sab", sab), ("natural", natural), ("share_randomness", share_randomness)
        ):  # fmt: skip
            flag(name, value)
        super().__init__(max_steps=max_steps, **options)
        self.sab, self.natural, self.share_randomness = sab, natural, share_randomness
        self._number = 0 if share_randomness else next(_instances)
        self._player: tuple[str, ...] = ()
        self._dealer: tuple[str, ...] = ()
        self._draws: tuple[tuple[str, ...], int] = ((), 0)
        self._origin = self._number
        self._shoe = Shoe((), 0)
        self._hits = 0
        self._over = False

    @property
    def task(self) -> str:
        return "Beat the dealer: come closer to 21 without going over."

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        player, dealer, _ = _given(options)
        values = " ".join(map(str, map(card_value, player)))
        return f"given/{values} against {card_value(dealer[0])}"  # not the hidden card

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        given: tuple[str, ...] = ()
        if options:
            self._player, self._dealer, given = _given(options)
        else:
            stream = self._stream(task_id)
            self._player = draw_card(stream), draw_card(stream)
            self._dealer = draw_card(stream), draw_card(stream)
        self._draws = given, seed
        self._hits, self._over = 0, False
        self._fill_shoe(self._number)
        return self._see()

    def _fill_shoe(self, origin: int) -> None:
        given, seed = self._draws
        self._origin = origin
        self._shoe = Shoe(given, _DRAWS_KEY, seed, origin)

    def _act(self, action: str) -> Outcome:
        action = action.strip().lower()
        if action == "hit":
            self._hit()
        elif action == "stand":
            self._stand()
        else:
            return Outcome(self._see(), action_valid=False)
        if not self._over:
            return Outcome(self._see())
        reward = self._reward()
        won = reward > 0
        return Outcome(self._see(), reward, True, won, score=0.5 if reward == 0 else float(won))

    def _hit(self) -> None:
        self._hits += 1
        self._player = (*self._player, self._shoe.take())
        self._over = total(self._player)[0] > LIMIT

    def _stand(self) -> None:
        while total(self._dealer)[0] < DEALER_STANDS:
            self._dealer = (*self._dealer, self._shoe.take())
        self._over = True

    def _reward(self) -> float:
        ours, theirs = _points(self._player), _points(self._dealer)
        reward = float((ours > theirs) - (ours < theirs)) if ours else -1.0
        if is_natural(self._player):
            if self.sab and not is_natural(self._dealer):
                return 1.0
            if not self.sab and self.natural and reward > 0:
                return NATURAL_PAYS
        return reward

    def admissible_actions(self) -> list[str]:
        return _ACTIONS

    def expert_action(self) -> str:
        """Basic strategy with nothing but ``hit`` and ``stand``.

        Hard totals: stand from 17, against 2 and 3 from 13, against 4 to 6 from 12. With an ace
        that counts 11: stand from 19, and on 18 against all but 9, 10 and an ace.
        """
        dealer = card_value(self._dealer[0])
        points, soft = total(self._player)
        stand_from = _STAND_FROM[dealer]
        if soft:
            stand_from = 19 if dealer in (1, 9, 10) else 18
        return "stand" if points >= stand_from else "hit"

    def _extra_info(self) -> Mapping[str, Any]:
        return {
            "player": [card_value(card) for card in self._player],
            "dealer": [card_value(card) for card in self._shown()],
        }

    def _shown(self) -> tuple[str, ...]:
        """The dealer's cards in sight."""
        return self._dealer if self._over else self._dealer[:1]

    def _text(self) -> str:
        yours = f"Your cards: {_described(self._player)}"
        if not self._over:
            shown = _named(self._dealer[0])
            return f"{yours}\nThe dealer shows: {shown}, and one card lies face down."
        return f"{yours}\nThe dealer's cards: {_described(self._dealer)}\n{self._verdict()}"

    def _verdict(self) -> str:
        reward = self._reward()
        return "You win." if reward > 0 else "You lose." if reward < 0 else "A draw."

    def _picture(self) -> np.ndarray:
        verdict = self._verdict() if self._over else ""
        return blackjack_picture(self.image_size, self._player, self._shown(), verdict).copy()

    def _deal(self) -> list[Any]:
        return [*self._player[: -self._hits or None], *self._dealer[:2]]

    def _progress(self) -> Any:
        stood = self._over and total(self._player)[0] <= LIMIT
        return [self._hits, stood, self._origin]

    def _resume(self, progress: Any) -> None:
        hits, stood, origin = progress
        self._fill_shoe(read_number("origin", origin, 0))
        for _ in range(read_number("hits", hits, 0, LIMIT)):
            self._hit()
        if stood:
            self._stand()


def total(cards: Sequence[str]) -> tuple[int, bool]:
    """The best total, and whether an ace counts 11 in it."""
    values = [card_value(card) for card in cards]
    hard = sum(values)
    soft = 1 in values and hard + 10 <= LIMIT
    return hard + 10 * soft, soft


def is_natural(cards: Sequence[str]) -> bool:
    """An ace and a ten as the first two cards."""
    return len(cards) == 2 and total(cards)[0] == LIMIT


def _points(cards: Sequence[str]) -> int:
    """The total, 0 when it is over 21."""
    points = total(cards)[0]
    return points if points <= LIMIT else 0


def _named(card: str) -> str:
    return "ace" if card[1] == "A" else str(card_value(card))


def _described(cards: Sequence[str]) -> str:
    points, soft = total(cards)
    note = ", an ace counting 11" if soft else ""
    return f"{', '.join(map(_named, cards))} (total {points}{note})"


def _given(
    options: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Cards of an explicit start: player, dealer, draws."""
    for key in ("player", "dealer"):
        if key not in options:
            raise OptionError(f"an explicit start needs both player and dealer; {key} is missing")
    hands = [_of_values(key, options.get(key, ())) for key in ("player", "dealer", "draws")]
    player, dealer, draws = hands
    if len(player) < 2 or total(player)[0] > LIMIT:
        raise OptionError("player needs at least two cards and at most 21 points")
    if len(dealer) != 2:
        raise OptionError(f"dealer needs two cards, got {len(dealer)}")
    return player, dealer, draws


def _of_values(name: str, values: Any) -> tuple[str, ...]:
    """Cards of the given values; their suits follow from the place."""
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise OptionError(f"{name} must be a list of values 1 to 10, got {values!r}")
    numbers = [read_number(f"a value of {name}", value, 1, 10) for value in values]
    return tuple(SUITS[(i + n) % len(SUITS)] + RANKS[n - 1] for i, n in enumerate(numbers))
