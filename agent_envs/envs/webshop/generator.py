"""The embedded shop: 1,000 made-up products in 34 kinds, and goals for them.

Products of a kind share words, features and prices, so a search finds the right kind and the shopper has to
compare: only the first bullet point is indexed, names vary, and several products meet part of a goal.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.webshop.catalogue import Stock, stock_in_memory
from agent_envs.envs.webshop.goals import HumanRow
from agent_envs.envs.webshop.product import Product, read_price

SIZE = 1000
SHOP_SEED = 1
_PRODUCT_KEY, _GOAL_KEY = 1, 2
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BULLETS = (
    "{a}: made for everyday use, with {b} in mind",
    "{a} and {b}, so that you can enjoy it for years",
    "Thanks to its {a} design it is a favourite for {use}",
    "We chose {material} for its feel; {a} comes as standard",
    "{a}. A thoughtful present for {use}",
)
_DESCRIPTIONS = (
    "{brand} {query} in {material}, {adjective} and reliable. Good for {use}.",
    "Our {adjective} {head} was tested by people like you. Pick the version that suits {use}.",
    "",
    "From the {brand} collection: {material}, {adjective}, at a fair price.",
)
_INSTRUCTIONS = (
    "Find me {a} {query} with {b}",
    "Find me {query} with {a}, {b}",
    "Find me {a}, {b} {query}",
    "Find me {a} {query} for {use}",
)
_PEOPLE = (
    "i am looking for {head} that is {a} and comes with {b}{options}.",
    "i need {a} {query}{options}, ideally with {b}.",
    "can you get me some {query} for {use}? it has to be {a}{options}.",
    "i'd like to buy a {head}{options}. {a} is a must, {b} would be great.",
)


@lru_cache(maxsize=1)
def words() -> dict[str, Any]:
    """The vocabulary: brands, kinds of products, and which words are nouns."""
    text = files("agent_envs.envs.webshop").joinpath("words.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def generate(size: int = SIZE, seed: int = SHOP_SEED) -> list[Product]:
    """``size`` products; the first ones do not depend on how many follow."""
    return [_product(i, random.Random(keyed_seed(seed, _PRODUCT_KEY, i))) for i in range(size)]


def _product(number: int, draw: random.Random) -> Product:
    table = words()
    kind = table["types"][number % len(table["types"])]
    attributes = draw.sample(kind["attributes"], draw.randint(4, 6))
    parts = {
        "brand": draw.choice(table["brands"]),
        "head": draw.choice(kind["heads"]),
        "adjective": draw.choice(kind["adjectives"]),
        "material": draw.choice(kind["materials"]),
        "use": draw.choice(kind["uses"]),
        "query": kind["query"],
    }
    plain = {name: text.lower() for name, text in parts.items() if name != "brand"}
    plain["brand"] = parts["brand"]
    title = _title(parts, attributes, draw)
    pairs = pairwise(attributes)
    bullets = [draw.choice(_BULLETS).format(a=a, b=b, **plain) for a, b in pairs]
    draw.shuffle(bullets)
    prices, tag = read_price(_price(kind["price"], draw))
    wanted = sorted(draw.sample(attributes, 2), key=attributes.index)
    instruction = draw.choice(_INSTRUCTIONS)
    return Product(
        _asin(number),
        title,
        draw.choice(_DESCRIPTIONS).format(**plain),
        tuple(bullets),
        kind["query"],
        kind["category"],
        kind["product_category"],
        tag,
        prices,
        _options(kind["options"], draw),
        tuple(attributes),
        "",
        instruction.format(a=wanted[0], b=wanted[1], **plain),
        tuple(wanted if "{b}" in instruction else wanted[:1]),
        title_nouns(title),
    )


def _title(parts: dict[str, str], attributes: Sequence[str], draw: random.Random) -> str:
    extra = attributes[0].title()
    forms = (
        "{brand} {adjective} {head}, {material}, {extra}",
        "{brand} {head} {material} {extra} for {use}",
        "{adjective} {material} {head} by {brand}",
        "{brand} {extra} {head} - {adjective} {use} Edition",
    )
    return draw.choice(forms).format(extra=extra, **parts)


def title_nouns(title: str) -> tuple[str, ...]:
    """The nouns of a generated title by the vocabulary's own tags, as spaCy splits words."""
    nouns = {*words()["nouns"], *(brand.lower() for brand in words()["brands"])}
    text = title.lower().replace("'s", " 's").replace(",", " ").replace("-", " ")
    return tuple(word for word in text.split() if word in nouns)


def _price(span: Sequence[int], draw: random.Random) -> str:
    low = draw.randint(span[0] * 100, span[1] * 100) / 100
    if draw.random() < 0.8:
        return f"${low:.2f}"
    return f"${low:.2f} - ${low * (1.1 + 0.6 * draw.random()):.2f}"


def _options(kind: dict[str, list[str]], draw: random.Random) -> dict[str, tuple[str, ...]]:
    """Part of what the kind offers, in its order; one in eight products has nothing to choose."""
    if draw.random() < 0.125:
        return {}
    return {
        name: tuple(
            sorted(draw.sample(values, draw.randint(2, min(5, len(values)))), key=values.index)
        )
        for name, values in kind.items()
    }


def _asin(number: int) -> str:
    """Ten characters, unlike any real shop's."""
    code = number * 7919 % 36**4
    digits = ""
    for _ in range(4):
        code, digit = divmod(code, 36)
        digits = _DIGITS[digit] + digits
    return f"AE{number % 97:02d}00{digits}"


def people_goals(products: Sequence[Product], seed: int = SHOP_SEED) -> list[HumanRow]:
    """One request per product in other words than the catalogue's; ``product`` is its place."""
    return [
        _request(place, product, random.Random(keyed_seed(seed, _GOAL_KEY, place)))
        for place, product in enumerate(products)
    ]


def _request(place: int, product: Product, draw: random.Random) -> HumanRow:
    kind = words()["types"][place % len(words()["types"])]
    first, second = draw.sample(product.attributes, 2)
    values = [draw.choice(product.options[name]) for name in sorted(product.options)]
    form = draw.choice(_PEOPLE)
    said = f" in {' and '.join(values)}" if values else ""
    text = form.format(
        a=first,
        b=second,
        options=said,
        query=kind["query"],
        head=draw.choice(kind["heads"]).lower(),
        use=draw.choice(kind["uses"]).lower(),
    )
    return HumanRow(place, text, (first, second) if "{b}" in form else (first,), tuple(values))


def generated_stock(size: int = SIZE, seed: int = SHOP_SEED) -> Stock:
    """Products, index and goals of the embedded shop."""
    products = generate(size, seed)
    return stock_in_memory(products, people_goals(products, seed), "embedded")
