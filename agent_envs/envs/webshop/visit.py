"""One shopper's way through the shop: where they are, what they chose. No text, no reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_envs.core.actions import Actions
from agent_envs.envs.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PER_PAGE,
    PREV,
    SEARCH_ACTION,
    SUB_PAGES,
    Card,
    Pages,
)

if TYPE_CHECKING:
    from agent_envs.envs.webshop.shop import Shop

START, RESULTS, ITEM, DONE = "start", "results", "item", "done"
_SUB = {name.lower(): name for name in SUB_PAGES}
_KINDS = (START, RESULTS, ITEM, DONE, *SUB_PAGES)
_START_ACTIONS = Actions([SEARCH_ACTION])
_SUB_ACTIONS = Actions([f"click[{BACK.lower()}]", f"click[{PREV.lower()}]"])
_NO_ACTIONS = Actions()


def parse_action(action: str) -> tuple[str, str]:
    """Name and argument of ``name[argument]``, or two empty strings.

    The original's greedy pattern on the first line: the argument begins after the last possible
    ``[`` and ends before the last ``]``; anything may follow.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    begin = line.rfind("[", 1, max(end - 1, 0))
    if begin < 1:
        return "", ""
    return line[:begin], line[begin + 1 : end]


def whole_argument(action: str) -> str:
    """What stands in ``click[...]`` when read to its last bracket: options may hold brackets."""
    line = action.partition("\n")[0].strip()
    return line[6:-1] if line.startswith("click[") and line.endswith("]") else ""


class Visit:
    """The state of an episode: page kind, search words, page number, product, options, visits.

    :meth:`act` returns whether the action did anything here. After ``Buy Now``, ``page`` is DONE.
    """

    __slots__ = ("_shop", "card", "found", "number", "options", "page", "visited", "words")

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.page = START
        self.words = ""
        self.found: Sequence[int] = ()  # results of the last search, best first
        self.number = 1
        self.card: Card | None = None
        self.options: dict[str, str] = {}
        self.visited: set[str] = set()

    def act(self, action: str, *, strict_search: bool) -> bool:
        name, argument = parse_action(action)
        argument = argument.lower()
        if name == "search":
            return not (strict_search and self.page != START) and self._search(argument)
        if name == "click":
            return self._click(argument)
        whole = whole_argument(action).lower()
        return "[" in whole and self._click(whole)

    def show(self, pages: Pages, instruction: str, score: float | None) -> str:
        """The current page; ``score`` of the purchase on the last one."""
        if self.page == START:
            return pages.start(instruction)
        if self.page == RESULTS:
            return pages.results(
                instruction, self.number, len(self.found), self.shown(), self.visited
            )
        card = self.opened
        if self.page == ITEM:
            return pages.item(instruction, card, self.options)
        if self.page == DONE:
            return pages.done(card.product.asin, self.options, score or 0.0)
        return pages.sub(instruction, card, self.page)

    @property
    def opened(self) -> Card:
        """The product whose page is open (or that was bought)."""
        assert self.card is not None
        return self.card

    def shown(self) -> list[Card]:
        """The products on the current result page."""
        first = (self.number - 1) * PER_PAGE
        return [self._shop.card(number) for number in self.found[first : first + PER_PAGE]]

    def card_at(self, place: int) -> Card:
        """The product at a place of the search's results, shown or not."""
        return self._shop.card(self.found[place])

    def clickables(self) -> list[str]:
        """Texts that can be clicked, in page order (``search``: the search button)."""
        if self.page == START:
            return ["search"]
        return [action[6:-1] for action in self.actions()]

    def actions(self) -> Actions:
        """Actions in page order; the search button as ``search[<your query>]``."""
        if self.page == RESULTS:
            turns = (BACK, PREV, NEXT) if self.number > 1 else (BACK, NEXT)
            texts = [*[turn.lower() for turn in turns], *[card.link for card in self.shown()]]
            return Actions([f"click[{text}]" for text in texts])
        if self.page == ITEM:
            return self.opened.actions
        if self.page == START:
            return _START_ACTIONS
        return _NO_ACTIONS if self.page == DONE else _SUB_ACTIONS

    # -- moves ----------------------------------------------------------------------------------

    def _search(self, words: str) -> bool:
        self.words, self.number = words, 1
        self.found = self._shop.search(words)
        self._show_results()
        return True

    def _show_results(self) -> None:
        self.page, self.card, self.options = RESULTS, None, {}

    def _click(self, text: str) -> bool:
        if self.page == START:
            return False
        if text == "back to search":
            self._leave()
            return True
        if self.page == RESULTS:
            return self._click_result(text)
        if self.page == ITEM:
            return self._click_item(text)
        if text == "< prev":  # a sub page
            self.page = ITEM
            return True
        return False

    def _leave(self) -> None:
        self.page, self.words, self.found, self.number = START, "", (), 1
        self.card, self.options, self.visited = None, {}, set()

    def _click_result(self, text: str) -> bool:
        if text == "next >":
            self.number += 1
            return True
        if text == "< prev" and self.number > 1:
            self.number -= 1
            return True
        card = next((card for card in self.shown() if card.link == text), None)
        if card is None:
            return False
        self.page, self.card, self.options = ITEM, card, {}
        self.visited.add(card.product.asin)
        return True

    def _click_item(self, text: str) -> bool:
        clickables = self.opened.clickables
        if text not in clickables:
            return False
        name = clickables[text]
        if name is not None:
            self.options[name] = text
        elif text == "< prev":
            self._show_results()
        else:
            self.page = DONE if text == BUY.lower() else _SUB[text]
        return True

    # -- states ---------------------------------------------------------------------------------

    def to_list(self) -> list[object]:
        """As small JSON-able data; the search is run again on restoring."""
        asin = self.card.product.asin if self.card else ""
        return [self.page, self.words, self.number, asin, self.options, sorted(self.visited)]

    def restore(self, state: Any) -> None:
        """The inverse of :meth:`to_list`; ValueError, KeyError or TypeError on data that does not fit."""
        page, words, number, asin, options, visited = state
        if page not in _KINDS or type(number) is not int or number < 1:
            raise ValueError("no such page")
        if not all(isinstance(text, str) for text in (words, asin, *visited)):
            raise ValueError("texts are missing")
        self.page, self.words, self.number, self.visited = page, words, number, set(visited)
        self.found = () if page == START else self._shop.search(words)
        self.card = self._shop.card(self._shop.catalogue.number(asin)) if asin else None
        if (self.card is None) != (page in (START, RESULTS)):
            raise ValueError("product and page do not agree")
        self.options = self._checked(options)

    def _checked(self, options: Mapping[str, str]) -> dict[str, str]:
        known: Mapping[str, Sequence[str]] = self.card.product.options if self.card else {}
        if any(value not in known[name] for name, value in options.items()):
            raise ValueError("an option's value is not the product's")
        return dict(options)
