"""WebShop restated the way such environments are often written: everything anew, per replica and per step.

Each shop holds its own copy of the catalogue and of a dictionary index, scores documents in a Python loop,
renders pages as HTML and reads the visible text back out of it. It knows text pages, not rewards.
"""

from __future__ import annotations

import copy
import html
import math
from collections import Counter
from html.parser import HTMLParser

from agent_envs.envs.webshop.analysis import analyse
from agent_envs.envs.webshop.product import Product
from agent_envs.envs.webshop.shop import RESULTS
from agent_envs.retrieval.bm25 import K1, B, norm_length

PER_PAGE = 10


class _Visible(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        if data != "\n":
            self.texts.append(data.strip())


def visible(page: str) -> str:
    reader = _Visible()
    reader.feed(page)
    return " [SEP] ".join(reader.texts)


def _button(text: str) -> str:
    return f'<form method="post"><button type="submit">{html.escape(text)}</button></form>\n'


def _line(text: str) -> str:
    return f"<p>{html.escape(text)}</p>\n"


class NaiveShop:
    """One replica: ``start``, then ``step`` with actions of a purchase that is known to be valid."""

    def __init__(self, products: list[Product]) -> None:
        self.products = {
            p.asin.lower(): copy.deepcopy(p) for p in sorted(products, key=lambda p: p.asin)
        }
        terms = {asin: analyse(p.indexed_text()) for asin, p in self.products.items()}
        self.lengths = {asin: norm_length(len(found)) for asin, found in terms.items()}
        self.average = sum(map(len, terms.values())) / len(terms)
        self.index: dict[str, dict[str, int]] = {}
        for asin, found in terms.items():
            for term, count in Counter(found).items():
                self.index.setdefault(term, {})[asin] = count

    def start(self, instruction: str) -> str:
        self.instruction, self.product = instruction, None
        self.found: list[str] = []
        self.page, self.options = 1, {}
        return visible("<h1>WebShop</h1>\n" + self._head() + _button("Search"))

    def search(self, words: str) -> list[str]:
        scores: dict[str, float] = {}
        for term, times in Counter(analyse(words)).items():
            postings = self.index.get(term, {})
            df, size = len(postings), len(self.products)
            idf = math.log(1 + (size - df + 0.5) / (df + 0.5))
            for asin, f in postings.items():
                norm = K1 * (1 - B + B * self.lengths[asin] / self.average)
                scores[asin] = scores.get(asin, 0.0) + times * idf * (1 - 1 / (1 + f / norm))
        ranked = sorted(scores.items(), key=lambda item: (-round(item[1], 5), item[0]))
        return [asin for asin, _ in ranked[:RESULTS]]

    def step(self, action: str) -> str:
        name, _, argument = action[:-1].partition("[")
        argument = argument.lower()
        if name == "search":
            self.found, self.page, self.product, self.options = self.search(argument), 1, None, {}
        elif argument in ("next >", "< prev") and self.product is None:
            self.page += 1 if argument == "next >" else -1
        elif argument in ("< prev", "back to search"):
            self.product, self.options = None, {}
        elif self.product is None:
            self.product = self.products[argument]
        else:
            for name, values in self.product.options.items():
                if argument in values:
                    self.options[name] = argument
        return visible(self._results() if self.product is None else self._item(self.product))

    def _head(self) -> str:
        return f"<h3>Instruction:</h3>\n<h4>{html.escape(self.instruction)}</h4>\n"

    def _results(self) -> str:
        page = self._head() + _button("Back to Search")
        page += _line(f"Page {self.page} (Total results: {len(self.found)})")
        page += (_button("< Prev") if self.page > 1 else "") + _button("Next >")
        for asin in self.found[(self.page - 1) * PER_PAGE : self.page * PER_PAGE]:
            p = self.products[asin]
            page += "<div>\n" + "".join(map(_line, (p.asin, p.title, p.price_tag))) + "</div>\n"
        return page

    def _item(self, p: Product) -> str:
        page = self._head() + _button("Back to Search") + _button("< Prev")
        for name, values in p.options.items():
            page += _line(name) + "".join(f"<label>{html.escape(v)}</label>\n" for v in values)
        page += _line(p.title) + _line(f"Price: {p.price_tag}") + _line("Rating: N.A.")
        return page + "".join(map(_button, ("Description", "Features", "Reviews", "Buy Now")))
