"""What a purchase is worth, as the original scores it.

``r = r_type (attributes met + options met + [price <= cap]) / (attributes + options + 1)``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from agent_envs.core.errors import MissingExtra
from agent_envs.core.record import record
from agent_envs.envs.webshop.colours import reduce_colour, reduce_pair
from agent_envs.envs.webshop.product import Product

SIMILAR = 85
SAME_TITLE, LITTLE_TITLE = 0.2, 0.1


@record
class Wish:
    """What a goal asks for, beside its words.

    ``options`` is a mapping (the goals made from the catalogue) or a list of values (people's).
    ``nouns`` are those of the wanted product's title, repetitions kept.
    """

    query: str
    product_category: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | Sequence[str]
    price_upper: float
    nouns: tuple[str, ...]


def score(
    product: Product,
    price: float,
    chosen: Mapping[str, str],
    wish: Wish,
    *,
    strict_options: bool = False,
) -> float:
    """The reward of buying ``product`` with the ``chosen`` options, in [0, 1]."""
    met = attributes_met(product, wish.attributes) + (price <= wish.price_upper)
    met += (strictly_met if strict_options else options_met)(chosen, wish.options)
    asked = len(wish.attributes) + len(wish.options) + 1
    return met / asked * type_factor(product, wish)


def type_factor(product: Product, wish: Wish) -> float:
    """1 for the right kind of thing, less for others, 0 where the titles share no noun."""
    title = title_score(product.nouns, wish.nouns)
    same = (
        product.query == wish.query
        or len(_parts(product.product_category) & _parts(wish.product_category)) >= 2
        or title > SAME_TITLE
    )
    if title == 0:
        return 0.0
    if title < LITTLE_TITLE:
        return 0.1
    return 1.0 if same else 0.5


def title_score(bought: Iterable[str], wanted: Sequence[str]) -> float:
    """Shared nouns over the number of wanted ones; 0.2 where there are none."""
    return len(set(bought) & set(wanted)) / len(wanted) if wanted else SAME_TITLE


def attributes_met(product: Product, wanted: Iterable[str]) -> int:
    """How many wanted attributes the product has or names in its texts."""
    texts = product.title.lower(), " ".join(product.bullets).lower(), product.description.lower()
    return sum(
        any(similar(own, attribute) for own in product.attributes)
        or any(attribute in text for text in texts)
        for attribute in wanted
    )


def options_met(chosen: Mapping[str, str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """The original's comparison, oddities kept.

    A goal made from the catalogue is compared as the *pair* of name and value, which is reduced to a
    colour only where one of the two is a colour word itself; so ``large`` meets ``xx-large``, and
    an exactly chosen ``228black`` does not meet itself.
    """
    values = [reduce_colour(value) for value in chosen.values()]
    return sum(any(similar(value, text) for value in values) for text in _goal_texts(wanted))


def strictly_met(chosen: Mapping[str, str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """Options that are exactly as asked for."""
    if isinstance(wanted, Mapping):
        return sum(chosen.get(name) == value for name, value in wanted.items())
    return sum(value in chosen.values() for value in wanted)


def similar(a: str, b: str) -> bool:
    return round(_ratio()(a, b)) > SIMILAR


@lru_cache(maxsize=1)
def _ratio() -> Callable[[str, str], float]:
    try:
        from rapidfuzz import fuzz, utils
    except ImportError:
        raise MissingExtra("the shop's reward", "webshop") from None
    clean = lru_cache(maxsize=1 << 14)(utils.default_process)
    return lambda a, b: float(fuzz.token_set_ratio(clean(a), clean(b)))


def _goal_texts(wanted: Mapping[str, str] | Sequence[str]) -> list[str]:
    if not isinstance(wanted, Mapping):
        return [reduce_colour(value) for value in wanted]
    return [reduce_pair(pair) for pair in wanted.items()]


@lru_cache(maxsize=4096)
def _parts(category: str) -> frozenset[str]:
    return frozenset(part.strip() for part in category.split("\u203a"))
