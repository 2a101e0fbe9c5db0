"""The shop of a process: one stock shared by all its episodes, and where it comes from."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_envs.core.errors import DataError, OptionError, one_of
from agent_envs.core.files import cache_dir
from agent_envs.core.tasks import TaskSet
from agent_envs.envs.webshop.analysis import analyse
from agent_envs.envs.webshop.catalogue import VERSION, Catalogue, Stock, read_stock
from agent_envs.envs.webshop.generator import generated_stock
from agent_envs.envs.webshop.goals import Goal, GoalTable, drawn_price, human_goal, made_goal
from agent_envs.envs.webshop.importer import compile_files, find_files
from agent_envs.envs.webshop.nouns import tag_titles
from agent_envs.envs.webshop.pages import Card
from agent_envs.envs.webshop.reward import Wish, similar

logger = logging.getLogger("agent_envs.webshop")

RESULTS = 50  # of a search
CARDS_IN_MEMORY = 4096
WORTH_WORKERS = 8_000_000  # bytes of catalogue from which starting processes pays
SPLITS: dict[str, dict[str, tuple[int, int | None]]] = {  # rule -> split -> goals [from, to)
    "seed": {"train": (500, None), "test": (0, 500)},
    "original": {"train": (1500, None), "eval": (500, 1500), "test": (0, 500)},
}
GOAL_KINDS = ("auto", "made", "human")


class Shop:
    """Products, search and prices, as episodes use them."""

    def __init__(self, stock: Stock, images: bool) -> None:
        self.stock = stock
        self.catalogue: Catalogue = stock.catalogue
        self._images = images
        self.card: Callable[[int], Card] = lru_cache(maxsize=CARDS_IN_MEMORY)(self._card)

    def _card(self, number: int) -> Card:
        return Card(self.catalogue.product(number), number, self._images)

    def search(self, words: str) -> list[int]:
        """Numbers of the best 50 products, best first."""
        return [number for number, _ in self.stock.index.search(analyse(words), RESULTS)]

    def wish(self, goal: Goal) -> Wish:
        """What the reward compares with."""
        return Wish(
            goal.query,
            goal.product_category,
            goal.attributes,
            goal.goal_options,
            goal.price_upper,
            self._nouns(goal),
        )

    def _nouns(self, goal: Goal) -> tuple[str, ...]:
        try:
            product = self.catalogue.product(self.catalogue.number(goal.asin))
        except KeyError:
            product = None
        if product is not None and product.title == goal.name:
            return product.nouns
        return next(tag_titles([goal.name]))


class GoalTasks(TaskSet):
    """Goals by index, in the original's shuffled order. Ids read ``goal/<place>/<asin>``."""

    def __init__(self, stock: Stock, kind: str, rule: str, price_seed: int) -> None:
        one_of("goals", kind, GOAL_KINDS)
        one_of("splits", rule, SPLITS)
        self.source = stock.source
        self._stock, self._table, self._price_seed = stock, _table(stock, kind), price_seed
        total = len(self._table)
        ranges = {name: range(total)[slice(*ends)] for name, ends in SPLITS[rule].items()}
        self._ranges = {name: places for name, places in ranges.items() if places}
        self.splits = tuple(self._ranges)

    def count(self, split: str) -> int:
        one_of("split", split, self.splits)
        return len(self._ranges[split])

    def task_id(self, split: str, index: int) -> str:
        place = self._ranges[split][self.check_index(split, index)]
        return f"goal/{place}/{self._product(place).asin}"

    def task_type(self, task_id: str) -> str:
        """The wanted product's category."""
        try:
            return self.goal(task_id).category
        except DataError:
            return ""

    def _product(self, place: int) -> Any:
        return self._stock.catalogue.product(self._table.place(place)[0])

    def goal(self, task_id: str) -> Goal:
        """The goal of an id; DataError where it is not here."""
        try:
            kind, number, asin = task_id.split("/")
            place = int(number)
            if kind != "goal" or not 0 <= place < len(self._table):
                raise ValueError("no such goal")
            product = self._product(place)
        except ValueError as error:
            raise DataError(f"{task_id!r} is no goal of this WebShop catalogue ({error})") from None
        if product.asin != asin:
            raise DataError(f"{task_id!r}: goal {place} wants {product.asin}: another catalogue?")
        _, combination, weight = self._table.place(place)
        if self._table.human:
            return human_goal(
                product, self._table.human[combination], combination, self._price_seed
            )
        return made_goal(product, combination, weight, self._price_seed)


def _table(stock: Stock, kind: str) -> GoalTable:
    if kind == "human" and stock.human is None:
        raise OptionError('goals="human" needs items_human_ins.json beside the catalogue')
    if kind == "made" or stock.human is None or (kind == "auto" and stock.source == "embedded"):
        return stock.made
    return stock.human


@lru_cache(maxsize=32)
def open_tasks(stock: Stock, kind: str, rule: str, price_seed: int) -> GoalTasks:
    return GoalTasks(stock, kind, rule, price_seed)


class Prices:
    """What products cost in this episode: given prices first, else the keyed draw."""

    def __init__(self, seed: int, given: Mapping[str, float]) -> None:
        self._seed, self._given = seed, given

    def of(self, card: Card) -> float:
        product = card.product
        given = self._given.get(product.asin)
        return drawn_price(product, self._seed) if given is None else given


# -- where stocks come from ----------------------------------------------------------------------


def open_shop(data_dir: str | Path | None, images: bool) -> Shop:
    """The shop of ``data_dir``, else of ``$WEBSHOP_DATA``, else the generated one."""
    _use_packages()
    chosen = str(data_dir or os.environ.get("WEBSHOP_DATA") or "")
    if not chosen:
        return _embedded(images)
    if chosen == "imported":
        folder = imported_folder()
        meta = folder / "meta.json"
        return _compiled(
            folder, meta.stat().st_mtime_ns if meta.exists() else 0, images, "imported"
        )
    path = Path(chosen).expanduser().absolute()
    folder = _compiled_once(path)
    return _compiled(folder, 0, images, path.name)


def _use_packages() -> None:
    """Raise MissingExtra now rather than in the middle of an episode."""
    analyse("caf\xe9 shopping")
    similar("a", "a")


@lru_cache(maxsize=2)
def _embedded(images: bool) -> Shop:
    return Shop(_generated(), images)


@lru_cache(maxsize=1)
def _generated() -> Stock:
    return generated_stock()


@lru_cache(maxsize=8)
def _compiled(folder: Path, _changed: int, images: bool, source: str) -> Shop:
    return Shop(_read(folder, _changed, source), images)


@lru_cache(maxsize=4)
def _read(folder: Path, _changed: int, source: str) -> Stock:
    remedy = "run 'agent-envs data import webshop DIR' with the original's files"
    return read_stock(folder, source, remedy)


def imported_folder() -> Path:
    return cache_dir() / "webshop" / "imported"


def _compiled_once(path: Path) -> Path:
    """The compiled form of files in the cache; made where it is absent or the files have changed."""
    if not path.exists():
        raise DataError(f"WebShop data: nothing at {path}; leave data_dir and WEBSHOP_DATA unset for "
                        "the embedded shop")  # fmt: skip
    files = find_files(path)
    facts = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files.all()]
    name = hashlib.sha256(repr((VERSION, facts)).encode()).hexdigest()[:16]
    folder = cache_dir() / "webshop" / name
    if not (folder / "meta.json").exists():
        logger.warning("compiling %s into %s (once; 'agent-envs data import webshop' does it in "
                       "parallel)", files.items, folder)  # fmt: skip
        skipped = compile_files(files, folder, earlier=_earlier())
        if skipped:
            logger.warning("%s: products left out: %s", files.items, skipped)
    return folder


def _earlier() -> list[Catalogue]:
    """Catalogues in the cache: their titles need no tagging again."""
    found: list[Catalogue] = []
    for meta in sorted((cache_dir() / "webshop").glob("[!.]*/meta.json")):
        try:
            found.append(read_stock(meta.parent, "", "").catalogue)
        except DataError as error:  # of another version
            logger.info("not used for nouns: %s", error)
    return found


def import_folder(
    data_dir: Path, progress: Callable[[int, int], None], workers: int
) -> tuple[Stock, dict[str, int]]:
    """Compile a download for ``data_dir="imported"``; returns the stock and what was left out."""
    files = find_files(data_dir.absolute())
    if files.items.stat().st_size < WORTH_WORKERS:
        workers = 1
    folder, known = imported_folder(), _earlier()
    skipped = compile_files(files, folder, progress, workers, known, replace_old=True)
    return read_stock(imported_folder(), "imported", ""), skipped
