"""``AgentEnv/WebShop-v0``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agent_envs.core.env import AgentEnv, Outcome
from agent_envs.core.errors import OptionError, flag, one_of
from agent_envs.core.profile import Profile
from agent_envs.core.seeding import check_seed
from agent_envs.envs.webshop.expert import next_action
from agent_envs.envs.webshop.goals import Goal, read_goal
from agent_envs.envs.webshop.pages import MODES, PAGES, options_json
from agent_envs.envs.webshop.profile import PROFILE
from agent_envs.envs.webshop.reward import Wish, score
from agent_envs.envs.webshop.shop import Prices, open_shop, open_tasks
from agent_envs.envs.webshop.visit import DONE, Visit

SUCCESS_REWARD = 10.0
COMPARISONS = ("original", "strict")


class WebShopEnv(AgentEnv):
    """An online shop in text: search, compare, choose options and buy what was asked for.

    Pages, actions, goals, search ranking and score as in princeton-nlp's WebShop text environment,
    without Java, Flask or spaCy at run time.

    ### Actions
    ``search[words]`` and ``click[text]``, where the text is that of a button, a product id or an option
    value on the page (any case). One action: what follows the last ``]`` is ignored, a blank or line before
    the name makes it invalid, as does anything else; invalid actions change nothing.
    ``info["admissible_actions"]`` lists the clicks of the page, on the start page the form of a search
    (searching is possible everywhere unless ``strict_search``).

    ### Observations
    ``obs_mode="text"``: the visible texts of the page joined by `` [SEP] ``; ``"text_rich"``: one a line,
    with ``[button] .. [button_]`` marks and what was clicked.

    ### Rewards
    10 for a purchase that meets everything, else 0 (``reward="score"``: the score itself), times
    ``reward_scale``. ``info["score"]`` is the original's reward in [0, 1] once something is bought:
    type factor x (attributes + options met + price) / (attributes + options + 1).

    ### Start and end
    ``reset(seed=s)`` plays the seed's goal of the split, ``options={"task_index": i}`` the i-th,
    ``options={"goal": {...}, "prices": {asin: dollars}}`` any goal. ``terminated`` by ``click[buy now]``,
    ``truncated`` after ``max_steps``.

    ### Arguments
    * ``split``: ``train`` or ``test`` (the first 500 goals); with ``splits="original"`` also ``eval``
      (the next 1,000).
    * ``data_dir``: a folder with the original's ``items_shuffle*.json`` and ``items_ins_v2*.json`` (or the
      path of one ``items_shuffle*.json``), or ``"imported"``; default ``$WEBSHOP_DATA``, else the
      generated shop of 1,000 products.
    * ``goals``: ``made`` from the catalogue, ``human``, or ``auto`` (people's where the data has them;
      made ones in the generated shop).
    * ``price_seed``: prices within ranges and price limits are drawn from it, once for all episodes.
    * ``options_match``: ``original`` (kept with its oddities, comparable scores) or ``strict``.
    * ``strict_search``: ``search`` does something only where there is a search bar.
    * ``images``: show the address of a product's main image where the data has it (nothing is loaded).
    * ``anchor``: ``"observation"`` (as the seed system) or ``"view"``, which adds the chosen options: in mode
      text a page does not show them. Both are texts, so a trainer may also group by similarity.
    * ``max_steps``: 15; None for no limit.

    ### Data
    The generated shop is original. WebShop's data (MIT) is read where it lies; a compiled catalogue is
    kept in the cache folder. Nothing is downloaded or executed.

    ### Differences from the original
    * Prices within a range and price limits are drawn by ``price_seed`` and the product's id; the original
      draws them from the global generator, so they differ from process to process.
    * ``text_rich`` marks exactly what is chosen; the original loses the mark of options with quotes or
      non-ASCII letters, and marks some that were not chosen.
    * Special searches (``<r>``, ``<a>``...) that crash the original are ordinary words; options with square
      brackets can be clicked.
    * Goals are shuffled with the seed system's 233, and its splits are the default.
    * 10 for a perfect purchase, else 0, as the seed system pays; the original pays the score.

    ### Access
    * reads: the package; the folder that ``data_dir`` or ``$WEBSHOP_DATA`` names.
    * writes: a compiled form of such data in the cache folder.
    * executes: nothing; actions are text that is parsed.
    * connects to: nothing; pictures are addresses only.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = PROFILE
    start_options: ClassVar[tuple[str, ...]] = ("goal", "prices")

    def __init__(
        self,
        *,
        split: str = "train",
        max_steps: int | None = 15,
        reward_scale: float = 1.0,
        data_dir: str | Path | None = None,
        obs_mode: str = "text",
        goals: str = "auto",
        splits: str = "seed",
        price_seed: int = 0,
        reward: str = "success",
        options_match: str = "original",
        strict_search: bool = False,
        images: bool = False,
        anchor: str = "observation",
        render_mode: str | None = None,
    ) -> None:
        one_of("obs_mode", obs_mode, MODES)
        one_of("reward", reward, ("success", "score"))
        one_of("anchor", anchor, ("observation", "view"))
        one_of("options_match", options_match, COMPARISONS)
        flag("strict_search", strict_search)
        flag("images", images)
        self.shop = open_shop(data_dir, images)
        self._goals = open_tasks(self.shop.stock, goals, splits, check_seed(price_seed))
        super().__init__(
            self._goals,
            split=split,
            max_steps=max_steps,
            reward_scale=reward_scale,
            render_mode=render_mode,
        )
        self._pages, self.price_seed = PAGES[obs_mode], int(price_seed)
        self._by_score, self._strict_options = reward == "score", options_match == "strict"
        self._strict_search, self._anchored_by = strict_search, anchor
        self._visit = Visit(self.shop)
        self._goal: Goal | None = None
        self._wish: Wish | None = None
        self._prices = Prices(self.price_seed, {})
        self._bought: float | None = None

    @property
    def goal(self) -> Goal:
        """The current episode's goal."""
        if self._goal is None:
            raise OptionError("no episode yet: call reset() first")
        return self._goal

    @property
    def visit(self) -> Visit:
        """Where the shopper is; read-only for users."""
        return self._visit

    @property
    def task(self) -> str:
        return self.goal.instruction_text

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        if "goal" not in options:
            raise OptionError("reset option prices needs a goal beside it")
        try:
            return f"goal/given/{read_goal(options['goal']).asin}"
        except ValueError as error:
            raise OptionError(f"reset option goal: {error}") from None

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> str:
        goal = read_goal(options["goal"]) if "goal" in options else self._goals.goal(task_id)
        prices = Prices(self.price_seed, _given_prices(options.get("prices")))
        self._visit, self._goal, self._prices = Visit(self.shop), goal, prices
        self._wish, self._bought = None, None
        return self._shown()

    def _shown(self) -> str:
        return self._visit.show(self._pages, self.goal.instruction_text, self._bought)

    def _act(self, action: str) -> Outcome:
        visit = self._visit
        if not visit.act(action, strict_search=self._strict_search):
            return Outcome(self._last.observation, action_valid=False)
        if visit.page != DONE:
            return Outcome(self._shown())
        self._bought = gained = score(
            visit.opened.product,
            self._prices.of(visit.opened),
            visit.options,
            self.wish,
            strict_options=self._strict_options,
        )
        won = gained == 1.0
        reward = gained if self._by_score else SUCCESS_REWARD * won
        return Outcome(self._shown(), reward, terminated=True, won=won, score=gained)

    @property
    def wish(self) -> Wish:
        """What the reward compares a purchase with."""
        if self._wish is None:
            self._wish = self.shop.wish(self.goal)
        return self._wish

    def admissible_actions(self) -> list[str]:
        return self._visit.actions()

    def expert_action(self) -> str | None:
        return next_action(self._visit, self.goal, self.wish, self._prices)

    def _anchor(self) -> str:
        observation: str = self._last.observation
        if self._anchored_by == "observation":
            return observation
        return f"{observation} {options_json(self._visit.options)}"

    def _snapshot(self) -> Any:
        return [self._visit.to_list(), self._bought]

    def _restore(self, snapshot: Any) -> str:
        state, bought = snapshot
        self._visit.restore(state)
        if (self._visit.page == DONE) != isinstance(bought, float):
            raise ValueError("bought or not bought?")
        self._bought = bought
        return self._shown()


def _given_prices(given: Any) -> dict[str, float]:
    try:
        return {str(asin): float(price) for asin, price in dict(given or {}).items()}
    except (TypeError, ValueError) as error:
        raise OptionError(f"reset option prices must map asins to dollars ({error})") from None
