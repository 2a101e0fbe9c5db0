"""The shop's pages as text, in the two forms that the original has.

``text``: what is visible, joined by `` [SEP] ``; ``text_rich``: one line each, with buttons marked. What does
not change during an episode is made once per product and shared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from agent_envs.core.actions import Actions
from agent_envs.envs.webshop.product import Product

SEP = " [SEP] "
PER_PAGE = 10
BACK, PREV, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
SEARCH_ACTION = "search[<your query>]"
MODES = ("text", "text_rich")
_JSON_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "&'<>"}
_DONE_TOP = ("Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)",
             "Purchased", "asin")  # fmt: skip
_DONE_MIDDLE = (
    "attrs", "None", "category", "None", "query", "None", "product category", "None", "Target", "asin",
    "options", "attrs", "price upper", "instuction text", "category", "product category", "query",
    "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)",
)  # fmt: skip
_DONE_END = ("Reward Details ", "None")


def button(text: str) -> str:
    return f"[button] {text} [button_]"


def clicked(text: str) -> str:
    return f"[clicked button] {text} [clicked button_]"


class Card:
    """A product with everything that its pages show, made when first looked at."""

    def __init__(self, product: Product, number: int, image: bool = False) -> None:
        self.product, self.number, self._image = product, number, image
        self.link = product.asin.lower()

    @cached_property
    def row(self) -> str:
        """Its lines on a result page, in mode text."""
        return _join(self.product.asin, self.product.title, self.product.price_tag)

    @cached_property
    def rich_rows(self) -> tuple[str, str]:
        """The same in mode text_rich, unvisited and visited."""
        tail = f"\n{self.product.title}\n{self.product.price_tag}\n"
        asin = self.product.asin
        return f"\n{button(asin)}{tail}", f"\n{clicked(asin)}{tail}"

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Title, price and rating, as they stand between options and buttons."""
        image = (f"Image: {self.product.image}",) if self._image and self.product.image else ()
        return self.product.title, *image, f"Price: {self.product.price_tag}", "Rating: N.A."

    @cached_property
    def item(self) -> str:
        """The item page in mode text, without the instruction."""
        options = [text for name, vs in self.product.options.items() for text in (name, *vs)]
        return _join(BACK, PREV, *options, *self.facts, *SUB_PAGES, BUY)

    @cached_property
    def rich_tail(self) -> str:
        return "\n".join([*self.facts, *map(button, (*SUB_PAGES, BUY)), ""])

    @cached_property
    def clickables(self) -> dict[str, str | None]:
        """What can be clicked on the item page: text -> the option's name, None for a button."""
        found: dict[str, str | None] = {b.lower(): None for b in (BACK, PREV, *SUB_PAGES, BUY)}
        for name, values in self.product.options.items():
            for value in values:
                if found.get(value, "") is not None:  # a button keeps its text
                    found[value] = name
        return found

    @cached_property
    def actions(self) -> Actions:
        return Actions(f"click[{text}]" for text in self.clickables)

    def texts(self, sub_page: str) -> tuple[str, ...]:
        """What a sub page says (Reviews: nothing, as in the original's data)."""
        if sub_page == "Description":
            return (self.product.description,) if self.product.description.strip() else ()
        return tuple(f" {b}" for b in self.product.bullets) if sub_page == "Features" else ()


def _join(*parts: str) -> str:
    return SEP.join(part.strip() for part in parts)


def options_json(options: Mapping[str, str]) -> str:
    """Chosen options as the thank-you page writes them."""
    return json.dumps(options, sort_keys=True).translate(_JSON_ESCAPES)


def page_line(page: int, total: int) -> str:
    return f"Page {page} (Total results: {total})"


class TextPages:
    """Mode ``text``."""

    def start(self, instruction: str) -> str:
        return _join("WebShop", "Instruction:", instruction, "Search")

    def results(
        self, instruction: str, page: int, total: int, cards: Sequence[Card], _: Collection[str]
    ) -> str:
        turns = (PREV, NEXT) if page > 1 else (NEXT,)
        head = _join("Instruction:", instruction, BACK, page_line(page, total), *turns)
        return SEP.join([head, *[card.row for card in cards]])

    def item(self, instruction: str, card: Card, _: Mapping[str, str]) -> str:
        return f"Instruction:{SEP}{instruction.strip()}{SEP}{card.item}"

    def sub(self, instruction: str, card: Card, name: str) -> str:
        return _join("Instruction:", instruction, BACK, PREV, *card.texts(name))

    def done(self, asin: str, options: Mapping[str, str], score: float) -> str:
        return _join(*_done(asin, options, score))


class RichPages:
    """Mode ``text_rich``."""

    def start(self, instruction: str) -> str:
        return f"WebShop\nInstruction: \n{instruction}\n{button('Search')}\n"

    def results(
        self,
        instruction: str,
        page: int,
        total: int,
        cards: Sequence[Card],
        visited: Collection[str],
    ) -> str:
        turns = (PREV, NEXT) if page > 1 else (NEXT,)
        head = [
            "Instruction:",
            instruction,
            button(BACK),
            page_line(page, total),
            *map(button, turns),
        ]
        rows = [card.rich_rows[card.product.asin in visited] for card in cards]
        return "\n".join(head) + "\n" + "".join(rows)

    def item(self, instruction: str, card: Card, options: Mapping[str, str]) -> str:
        said: list[str] = []
        lines = ["Instruction:", instruction, button(BACK), button(PREV)]
        for name, values in card.product.options.items():
            lines.append(name)
            chosen = options.get(name)
            for value in values:
                if value == chosen:
                    said.insert(0, f"You have clicked {value}.")
                    lines.append(f"  {clicked(value)}")
                else:
                    lines.append(f"  {button(value)}")
        return "\n".join([*said, *lines, card.rich_tail])

    def sub(self, instruction: str, card: Card, name: str) -> str:
        head = ["Instruction:", instruction, button(BACK), button(PREV)]
        return "\n".join([*head, *card.texts(name), ""])

    def done(self, asin: str, options: Mapping[str, str], score: float) -> str:
        return "\n".join([*_done(asin, options, score), ""])


Pages = TextPages | RichPages
PAGES: dict[str, Pages] = {"text": TextPages(), "text_rich": RichPages()}


def _done(asin: str, options: Mapping[str, str], score: float) -> tuple[str, ...]:
    shown = options_json(options)
    return (*_DONE_TOP, asin, "options", shown, *_DONE_MIDDLE, str(score), *_DONE_END)
