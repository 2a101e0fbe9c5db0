"""A scripted shopper: searches, compares what it found, chooses options, buys.

It knows the goal's parts and may look up the products that its own search found (what a patient reader
of their pages knows), but not which product the goal was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_envs.envs.webshop.goals import Goal
from agent_envs.envs.webshop.pages import BUY, PER_PAGE, Card
from agent_envs.envs.webshop.product import Product
from agent_envs.envs.webshop.reward import Wish, options_met, score
from agent_envs.envs.webshop.shop import Prices
from agent_envs.envs.webshop.visit import DONE, ITEM, RESULTS, START, Visit


def next_action(visit: Visit, goal: Goal, wish: Wish, prices: Prices) -> str | None:
    """What to do now; None where the episode is over. Depends on the current page only."""
    if visit.page == DONE:
        return None
    if visit.page == START:
        return f"search[{search_words(goal)}]"
    if visit.page == RESULTS:
        return _on_results(visit, wish, prices)
    if visit.page == ITEM:
        return _on_item(visit.opened, visit.options, wish)
    return "click[< prev]"


def search_words(goal: Goal) -> str:
    """Kind of thing, attributes and option values; brackets would end the action."""
    options = goal.goal_options
    values = list(options.values()) if isinstance(options, Mapping) else list(options)
    text = " ".join([goal.query, *goal.attributes, *values])
    return text.translate(str.maketrans("[]\n", "   ")).strip() or "anything"


def _on_results(visit: Visit, wish: Wish, prices: Prices) -> str:
    cards = [visit.card_at(place) for place in range(len(visit.found))]
    if not cards:
        return "click[back to search]"
    worth = [_worth(card, wish, prices) for card in cards]
    page = worth.index(max(worth)) // PER_PAGE + 1
    if page != visit.number:
        return f"click[{'next >' if page > visit.number else '< prev'}]"
    return f"click[{cards[worth.index(max(worth))].link}]"


def _worth(card: Card, wish: Wish, prices: Prices) -> float:
    return score(card.product, prices.of(card), choice(card.product, wish.options), wish)


def _on_item(card: Card, chosen: Mapping[str, str], wish: Wish) -> str:
    for name, value in choice(card.product, wish.options).items():
        if chosen.get(name) != value and card.clickables.get(value) == name:
            return f"click[{value}]"
    return f"click[{BUY.lower()}]"


def choice(product: Product, wanted: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """For each of the product's options the value that meets the goal best, if any does."""
    found: dict[str, str] = {}
    for name, values in product.options.items():
        asked: Mapping[str, str] | Sequence[str]
        if isinstance(wanted, Mapping):
            asked = {name: wanted[name]} if name in wanted else {}
            exact = [value for value in values if value == wanted.get(name)]
        else:
            asked = wanted
            exact = [value for value in values if value in wanted]
        near = [value for value in values if asked and options_met({name: value}, asked)]
        best = exact or near
        if best:
            found[name] = best[0]
    return found
