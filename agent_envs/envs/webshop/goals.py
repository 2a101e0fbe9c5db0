"""What shoppers want: goals made from the catalogue's instructions, or people's own.

Only numbers are kept per goal; the words are made when a goal is asked for. All draws are keyed by
the price seed and the product, so a goal's number means the same words in every process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from agent_envs.core.record import record
from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.webshop.product import Product

SHUFFLE_SEED = 233  # the seed system's
NO_CAP = 1000000.0
_PRICE_KEY, _CAP_KEY = 0x5A1E, 0xCA9


@record
class Goal:
    """One shopping task; field for field the original's goal dictionary.

    ``goal_options`` is a mapping in goals made from the catalogue, a list of values in people's.
    """

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: tuple[str, ...]
    price_upper: float
    goal_options: Mapping[str, str] | Sequence[str]
    weight: float


GOAL_FIELDS = tuple(field.name for field in fields(Goal))


def asin_key(asin: str) -> int:
    return int.from_bytes(asin.encode(), "big")


def drawn_price(product: Product, price_seed: int) -> float:
    """The product's price in dollars: uniform within its range, the same for the same seed."""
    if len(product.prices) == 1:
        return product.prices[0]
    low, high = product.prices
    draw = keyed_seed(price_seed, _PRICE_KEY, asin_key(product.asin)) / 2**63
    return low + (high - low) * draw


def cap_steps(price: float) -> list[float]:
    """The first four multiples of ten above a price, up to 990."""
    return [float(ten) for ten in range(10, 1000, 10) if ten > price][:4]


def price_cap(product: Product, number: int, price_seed: int) -> float:
    """The upper of two of the first four multiples of ten above the price; NO_CAP beyond 980."""
    steps = cap_steps(drawn_price(product, price_seed))
    if len(steps) < 2:
        return NO_CAP
    draw = random.Random(keyed_seed(price_seed, _CAP_KEY, asin_key(product.asin), number))
    return max(draw.sample(steps, 2))


def _price_words(cap: float) -> str:
    return "" if cap == NO_CAP else f", and price lower than {cap:.2f} dollars"


def made_goal(product: Product, combination: int, weight: float, price_seed: int) -> Goal:
    """The goal of one combination of a product's options."""
    options = product.combination(combination)
    cap = price_cap(product, combination, price_seed)
    wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
    text = product.instruction + (f" with {wanted}" if wanted else "") + _price_words(cap)
    return _goal(product, text, product.instruction_attributes, cap, options, weight)


def human_goal(product: Product, row: HumanRow, number: int, price_seed: int) -> Goal:
    """A goal in people's own words."""
    cap = price_cap(product, number, price_seed)
    text = row.instruction.strip(".") + _price_words(cap)
    return _goal(product, text, row.attributes, cap, row.options, 1.0)


def _goal(
    product: Product,
    text: str,
    attributes: tuple[str, ...],
    cap: float,
    options: Mapping[str, str] | Sequence[str],
    weight: float,
) -> Goal:
    return Goal(
        product.asin,
        product.category,
        product.query,
        product.title,
        product.product_category,
        text,
        attributes,
        cap,
        options,
        weight,
    )


@record
class HumanRow:
    """One entry of ``items_human_ins.json``; ``product`` is the product's number."""

    product: int
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(slots=True)
class GoalTable:
    """Which goals there are. Made ones: per product its number, combinations and weight."""

    products: npt.NDArray[np.int32]
    combinations: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    human: tuple[HumanRow, ...] = ()
    _starts: npt.NDArray[np.int64] = field(init=False)
    _order: npt.NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = np.concatenate([[0], np.cumsum(self.combinations)]).astype(np.int64)
        order = list(range(len(self.human) or int(self._starts[-1])))
        random.Random(SHUFFLE_SEED).shuffle(order)
        self._order = np.array(order, np.int32)

    def __len__(self) -> int:
        return len(self._order)

    def place(self, index: int) -> tuple[int, int, float]:
        """The ``index``-th goal after shuffling: product number, combination (people's goals: their
        place in the file) and weight."""
        place = int(self._order[index])
        if self.human:
            return self.human[place].product, place, 1.0
        row = int(np.searchsorted(self._starts, place, side="right")) - 1
        first = int(self._starts[row])
        return int(self.products[row]), place - first, float(self.weights[row])


def made_table(rows: Iterable[tuple[int, int, Sequence[str]]]) -> GoalTable:
    """The table of made goals, from (product number, combinations, instruction attributes) in
    catalogue order. A goal's weight is the mean of 1 / (goals with that attribute)."""
    rows = list(rows)
    counts: Counter[str] = Counter()
    for _, combinations, attributes in rows:
        for attribute in attributes:
            counts[attribute] += combinations
    weights = [
        sum(1 / counts[a] for a in attrs) / len(attrs) if attrs else 0.0 for *_, attrs in rows
    ]
    return GoalTable(
        np.array([r[0] for r in rows], np.int32),
        np.array([r[1] for r in rows], np.int64),
        np.array(weights, np.float64),
    )


def read_goal(given: Any) -> Goal:
    """A goal from an explicit start (a mapping as in the recordings).

    Raises:
        ValueError: a field is missing or of a wrong kind.
    """
    try:
        found = {name: given[name] for name in GOAL_FIELDS if name != "weight"}
        options = found["goal_options"]
        found["attributes"] = tuple(map(str, found["attributes"]))
        found["price_upper"] = float(found["price_upper"])
        if isinstance(options, Mapping):
            found["goal_options"] = {str(k): str(v) for k, v in options.items()}
        else:
            found["goal_options"] = tuple(map(str, options))
        goal = Goal(**found, weight=float(given.get("weight", 1.0)))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"not a goal ({error!r}); needed: {', '.join(GOAL_FIELDS)}") from None
    texts = ("asin", "category", "query", "name", "product_category", "instruction_text")
    wrong = [name for name in texts if not isinstance(getattr(goal, name), str)]
    if wrong:
        raise ValueError(f"a goal's {', '.join(wrong)} must be text")
    return goal
