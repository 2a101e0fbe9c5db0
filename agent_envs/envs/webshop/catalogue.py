"""The shop's products by number, in memory or compiled in a folder.

Products are numbered in the order of their ids (as in the index); ``order`` is the order of the file that
they came from.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agent_envs.core.errors import DataError
from agent_envs.envs.webshop.analysis import analyse
from agent_envs.envs.webshop.goals import GoalTable, HumanRow, made_table
from agent_envs.envs.webshop.product import Product
from agent_envs.retrieval.bm25 import Index, build_index, read_postings

VERSION = 2  # of the compiled form; raise it whenever the same files compile to something else
PRODUCTS_IN_MEMORY = 4096
_INDEX_ARRAYS = ("keys", "starts", "documents", "impacts")
_GOAL_ARRAYS = ("products", "combinations", "weights")


class Catalogue(Protocol):
    """Products by number."""

    size: int

    def product(self, number: int) -> Product: ...

    def number(self, asin: str) -> int:
        """The product's number; KeyError where it is not here."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """All that the episodes of a process share: products, their index, the goals."""

    catalogue: Catalogue
    index: Index
    made: GoalTable
    human: GoalTable | None
    source: str
    skipped: dict[str, int]


class MemoryCatalogue:
    """Products held as objects."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = sorted(products, key=lambda product: product.asin)
        self._numbers = {product.asin: i for i, product in enumerate(self._products)}
        self.size = len(self._products)

    def product(self, number: int) -> Product:
        return self._products[number]

    def number(self, asin: str) -> int:
        return self._numbers[asin]


def stock_in_memory(products: Sequence[Product], people: Sequence[HumanRow], source: str) -> Stock:
    """Index and goals of products in catalogue order. ``people``: ``product`` is a place in it."""
    catalogue = MemoryCatalogue(products)
    texts = [catalogue.product(i).indexed_text() for i in range(catalogue.size)]
    postings = read_postings(map(analyse, texts), range(catalogue.size))
    numbers = [catalogue.number(product.asin) for product in products]
    made = made_table(
        (numbers[i], product.combinations(), product.instruction_attributes)
        for i, product in enumerate(products)
        if product.instruction
    )
    rows = [HumanRow(numbers[r.product], r.instruction, r.attributes, r.options) for r in people]
    index = build_index([postings], catalogue.size, postings.lengths)
    human = human_table(rows) if rows else None
    return Stock(catalogue, index, made, human, source, {})


def human_table(rows: Sequence[HumanRow]) -> GoalTable:
    empty = np.empty(0)
    return GoalTable(empty.astype(np.int32), empty.astype(np.int64), empty, tuple(rows))


def _mapped(path: Path) -> npt.NDArray[Any]:
    """A file's array, read on demand; as a plain array, whose slices cost a third of a memmap's."""
    return np.asarray(np.load(path, mmap_mode="r")).view(np.ndarray)


class StoredCatalogue:
    """Products of a compiled folder, mapped into memory and decoded when asked for."""

    def __init__(self, folder: Path) -> None:
        self._ends: npt.NDArray[np.int64] = _mapped(folder / "ends.npy")
        self._asins: npt.NDArray[np.bytes_] = _mapped(folder / "asins.npy")
        self.size = len(self._asins)
        with (folder / "records.bin").open("rb") as file:
            self._records = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._places: npt.NDArray[np.int32] = _mapped(folder / "places.npy")
        self.product = lru_cache(maxsize=PRODUCTS_IN_MEMORY)(self._read)

    def _read(self, number: int) -> Product:
        place = int(self._places[number])
        begin = int(self._ends[place - 1]) if place else 0
        return Product.from_list(json.loads(self._records[begin : int(self._ends[place])]))

    def number(self, asin: str) -> int:
        key = asin.encode()
        found = int(np.searchsorted(self._asins, key))
        if found == self.size or bytes(self._asins[found]) != key:
            raise KeyError(asin)
        return found


def write_stock(
    folder: Path,
    ends: npt.NDArray[np.int64],
    asins: Sequence[str],
    index: Index,
    made: GoalTable,
    human: Sequence[HumanRow],
    facts: dict[str, Any],
) -> None:
    """Add all but ``records.bin`` (written while reading) to a compiled folder.

    Args:
        ends: where each record ends in ``records.bin``, in the order of the file.
        asins: the products' ids in the same order.
    """
    order = np.argsort(np.array(asins, "S10"), kind="stable").astype(np.int32)
    np.save(folder / "ends.npy", ends)
    np.save(folder / "asins.npy", np.array(asins, "S10")[order])
    np.save(folder / "places.npy", order)
    for name in _INDEX_ARRAYS:
        np.save(folder / f"index_{name}.npy", getattr(index, name))
    for name in _GOAL_ARRAYS:
        np.save(folder / f"goals_{name}.npy", getattr(made, name))
    people = [list(asdict(row).values()) for row in human]
    (folder / "people.json").write_text(json.dumps(people), encoding="utf-8")
    meta = {"version": VERSION, **facts}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def read_stock(folder: Path, source: str, remedy: str) -> Stock:
    """Map a compiled folder.

    Raises:
        DataError: the folder is absent, of another version or damaged; ``remedy`` says what to do.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["version"] != VERSION:
            raise ValueError(f"version {meta['version']}, needed {VERSION}")
        catalogue = StoredCatalogue(folder)
        arrays = {name: _mapped(folder / f"index_{name}.npy") for name in _INDEX_ARRAYS}
        made = GoalTable(*[np.load(folder / f"goals_{name}.npy") for name in _GOAL_ARRAYS])
        people = json.loads((folder / "people.json").read_text(encoding="utf-8"))
        rows = [HumanRow(p, text, tuple(a), tuple(o)) for p, text, a, o in people]
    except FileNotFoundError as error:
        raise DataError(f"no compiled WebShop catalogue at {folder} ({error}): {remedy}") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder} is no readable WebShop catalogue ({error}): {remedy}") from error
    index = Index(**arrays, size=catalogue.size)
    return Stock(
        catalogue, index, made, human_table(rows) if rows else None, source, dict(meta["skipped"])
    )
