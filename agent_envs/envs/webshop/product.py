"""A product as the shop shows it, and how it is read from the original's files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agent_envs.core.record import record

UNKNOWN_PRICE = 100.0  # what the original takes where no price is known
NO_ATTRIBUTE = "DUMMY_ATTR"
MAX_ASIN = 10
MAX_COMBINATIONS = (
    1_000_000  # each is a goal; a dozen options of a dozen values would fill any memory
)
_NOT_PRICE = re.compile(r"[^\d.]")


class BadProduct(ValueError):
    """A record that cannot be sold; the message says why, in a few fixed words."""


@record
class Product:
    """One product. ``prices`` holds one price, or a range's lower and upper one, in dollars.

    ``nouns`` are the nouns of the title, lower-cased; the instruction is "" where the data has none.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    query: str
    category: str
    product_category: str
    price_tag: str
    prices: tuple[float, ...]
    options: dict[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    image: str
    instruction: str
    instruction_attributes: tuple[str, ...]
    nouns: tuple[str, ...] = ()

    def indexed_text(self) -> str:
        """What full-text search sees: of the bullet points only the first."""
        options = ", and ".join(f"{name}: {', '.join(v)}" for name, v in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return f"{self.title} {self.description} {first} {options}".lower()

    def combinations(self) -> int:
        """In how many ways its options can be chosen."""
        count = 1
        for values in self.options.values():
            count *= len(values)
        return count

    def combination(self, number: int) -> dict[str, str]:
        """The ``number``-th choice of options: names sorted, the last one turning fastest."""
        chosen = {}
        for name in sorted(self.options, reverse=True):
            number, place = divmod(number, len(self.options[name]))
            chosen[name] = self.options[name][place]
        return dict(reversed(chosen.items()))

    def to_list(self) -> list[Any]:
        """As JSON-able data, for :meth:`from_list`."""
        return [getattr(self, name) for name in _FIELDS]

    @classmethod
    def from_list(cls, row: list[Any]) -> Product:
        fields: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
        for name in ("bullets", "prices", "attributes", "instruction_attributes", "nouns"):
            fields[name] = tuple(fields[name])
        fields["options"] = {name: tuple(values) for name, values in fields["options"].items()}
        return cls(**fields)


_FIELDS = tuple(field.name for field in fields(Product))


def read_product(row: Any, facts: Mapping[str, Any]) -> Product:
    """A product from one record of ``items_shuffle*.json`` and its entry of ``items_ins_v2*.json``.

    Raises:
        BadProduct: a needed field is missing or of a wrong kind.
    """
    if not isinstance(row, Mapping):
        raise BadProduct("no JSON object")
    asin = _text(row, "asin")
    plain = asin.isascii() and asin.isalnum()
    if asin == "nan" or not plain or len(asin) > MAX_ASIN:
        raise BadProduct("asin is no product id")
    prices, tag = read_price(row.get("pricing"))
    images = row.get("images")
    instruction = facts.get("instruction")
    product = Product(
        asin,
        _text(row, "name"),
        _text(row, "full_description", needed=False),
        _bullets(row.get("small_description")),
        _text(row, "query").lower().strip(),
        _text(row, "category"),
        _text(row, "product_category"),
        tag,
        prices,
        _options(row.get("customization_options")),
        _words(facts.get("attributes")) or (NO_ATTRIBUTE,),
        images[0] if isinstance(images, list) and images and isinstance(images[0], str) else "",
        instruction if isinstance(instruction, str) else "",
        _words(facts.get("instruction_attributes")),
    )
    if product.combinations() > MAX_COMBINATIONS:
        raise BadProduct("customization_options allow too many choices")
    return product


def read_price(text: Any) -> tuple[tuple[float, ...], str]:
    """Prices in dollars and the tag shown; texts without a dollar price count as unknown."""
    found = []
    for part in text.split("$")[1:] if isinstance(text, str) else ():
        digits = _NOT_PRICE.sub("", part)
        try:
            found.append(float(digits))
        except ValueError:  # "." or "1.2.3"
            continue
    if not found:
        return (UNKNOWN_PRICE,), f"${UNKNOWN_PRICE}"
    if len(found) == 1:
        return (found[0],), f"${found[0]}"
    return (found[0], found[1]), f"${found[0]} to ${found[1]}"


def _text(row: Mapping[str, Any], name: str, *, needed: bool = True) -> str:
    value = row.get(name)
    if value is None and not needed:
        return ""
    if not isinstance(value, str):
        raise BadProduct(f"{name} is missing or no text")
    return value


def _bullets(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(str(b) for b in value if b is not None) if isinstance(value, list) else ()


def _words(value: Any) -> tuple[str, ...]:
    return tuple(w for w in value if isinstance(w, str)) if isinstance(value, list) else ()


def _options(value: Any) -> dict[str, tuple[str, ...]]:
    if not value:
        return {}
    if not isinstance(value, Mapping):
        raise BadProduct("customization_options is no object")
    options = {}
    for name, contents in value.items():
        if contents is None:
            continue
        try:
            texts = [str(c["value"]).strip() for c in contents]
        except (TypeError, KeyError):
            raise BadProduct("customization_options holds no values") from None
        # no action can name an empty text or one of two lines
        values = [t.replace("/", " | ").lower() for t in texts if t and "\n" not in t]
        if values:
            options[str(name).lower()] = tuple(values)
    return options
