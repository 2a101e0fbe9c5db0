"""From the original's files to a compiled folder: streamed, analysed in batches, in parallel if asked."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

import numpy as np

from agent_envs.core.errors import DataError, MissingExtra
from agent_envs.envs.webshop.analysis import analyse
from agent_envs.envs.webshop.catalogue import Catalogue, write_stock
from agent_envs.envs.webshop.goals import HumanRow, made_table
from agent_envs.envs.webshop.nouns import tag_titles
from agent_envs.envs.webshop.product import BadProduct, Product, read_product
from agent_envs.retrieval.bm25 import Postings, build_index, read_postings

BATCH = 500
_STALE = 86_400  # seconds
ITEMS, FACTS, PEOPLE, NOUNS = "items_shuffle", "items_ins_v2", "items_human_ins.json", "nouns.json"
Progress = Callable[[int, int], None]
_HELP = "it must hold items_shuffle*.json and items_ins_v2*.json of the original WebShop"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one catalogue; ``people`` and ``nouns`` may be absent."""

    items: Path
    facts: Path
    people: Path | None
    nouns: Path | None

    def all(self) -> tuple[Path, ...]:
        return tuple(p for p in (self.items, self.facts, self.people, self.nouns) if p)


def find_files(data_dir: Path) -> Files:
    """The catalogue in a folder, or the one whose ``items_shuffle*.json`` is named.

    Raises:
        DataError: there is none, or more than one to choose from.
    """
    if data_dir.is_file():
        items = data_dir
    else:
        found = sorted(data_dir.glob(f"{ITEMS}*.json"))
        if not found:
            raise DataError(f"WebShop data: no {ITEMS}*.json in {data_dir}: {_HELP}")
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise DataError(f"WebShop data: {data_dir} holds {names}: give the path of one of them")
        (items,) = found
    facts = items.with_name(items.name.replace(ITEMS, FACTS, 1))
    if facts == items or not facts.is_file():
        raise DataError(f"WebShop data: {facts} is missing beside {items}: {_HELP}")
    optional = [items.with_name(name) for name in (PEOPLE, NOUNS)]
    return Files(items, facts, *[path if path.is_file() else None for path in optional])


def compile_files(
    files: Files,
    folder: Path,
    progress: Progress = lambda done, total: None,
    workers: int = 1,
    earlier: Sequence[Catalogue] = (),
    *,
    replace_old: bool = False,
) -> dict[str, int]:
    """Compile to ``folder``, which appears as a whole; returns how many products were skipped, by reason.

    Args:
        progress: called with (bytes read, bytes in all) of the catalogue.
        workers: processes that analyse; more than 1 need an importable main module (spawn).
        earlier: catalogues whose titles are tagged already.
        replace_old: a folder that is there gives way; else it stays, as another process made it.

    Raises:
        DataError: a file is no JSON or no UTF-8, or holds no product at all.
        MissingExtra: names must be tagged and spaCy is not here.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        skipped = _compile(files, made, progress, workers, _Nouns(files.nouns, earlier))
        if replace_old and folder.exists():
            old = folder.rename(made.with_suffix(".old"))
            made.rename(folder)
            shutil.rmtree(old)
        else:
            _move(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return skipped


def _sweep(parent: Path) -> None:
    """Remove what imports that were killed left behind: hidden folders that are no longer written."""
    for left in parent.glob(".*"):
        if left.is_dir() and time.time() - left.stat().st_mtime > _STALE:
            shutil.rmtree(left, ignore_errors=True)


def _move(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "meta.json").exists():
            raise
        shutil.rmtree(made, ignore_errors=True)  # another process was faster


def _compile(
    files: Files, folder: Path, progress: Progress, workers: int, known: _Nouns
) -> dict[str, int]:
    reader = _Reader(files, progress)
    ends = array("q")
    asins: list[str] = []
    goals: list[tuple[int, int, tuple[str, ...]]] = []
    postings: list[Postings] = []
    size = 0
    with (folder / "records.bin").open("wb") as file:
        for products, batch in _prepared(reader.batches(), known, workers):
            for product in products:
                line = json.dumps(product.to_list(), separators=(",", ":")).encode()
                size += file.write(line)
                ends.append(size)
                if product.instruction:
                    goals.append(
                        (len(asins), product.combinations(), product.instruction_attributes)
                    )
                asins.append(product.asin)
            postings.append(batch)
    if not asins:
        raise DataError(
            f"{files.items}: no product is usable; left out: {dict(reader.skipped)}; "
            f"first: {reader.first_problem}"
        )
    numbers = np.argsort(np.argsort(np.array(asins, "S10"), kind="stable")).astype(np.int32)
    lengths = np.empty(len(asins), np.int32)
    lengths[numbers] = np.concatenate([batch.lengths for batch in postings])
    postings = [replace(b, documents=numbers[b.documents]) for b in postings]
    index = build_index(postings, len(asins), lengths)
    places = {asin: int(numbers[i]) for i, asin in enumerate(asins)}
    table = made_table((int(numbers[p]), count, attributes) for p, count, attributes in goals)
    people = _read_people(files.people, places)
    facts = {"skipped": dict(reader.skipped), "files": [str(path) for path in files.all()]}
    write_stock(folder, np.array(ends, np.int64), asins, index, table, people, facts)
    return dict(reader.skipped)


class _Reader:
    """Products of a file, one after the other; what is skipped is counted."""

    def __init__(self, files: Files, progress: Progress) -> None:
        self._files, self._progress = files, progress
        self.skipped: Counter[str] = Counter()
        self.first_problem = "the list is empty"

    def batches(self) -> Iterator[tuple[int, list[Product]]]:
        """(number of the first product, products)."""
        products, done = self._products(), 0
        while batch := list(islice(products, BATCH)):
            yield done, batch
            done += len(batch)

    def _products(self) -> Iterator[Product]:
        facts = {asin: _object(row) for asin, row in _stream(self._files.facts, pairs=True)}
        seen: set[str] = set()
        for place, row in enumerate(_stream(self._files.items, progress=self._progress)):
            asin = row.get("asin") if isinstance(row, dict) else None
            try:
                # popped, as there are a million: a second product of the same id is refused anyway
                product = read_product(row, facts.pop(asin, {}) if isinstance(asin, str) else {})
                if product.asin in seen:
                    raise BadProduct("asin was there before")
            except BadProduct as problem:
                self.skipped[str(problem)] += 1
                if self.skipped.total() == 1:
                    self.first_problem = f"product {place} of {self._files.items}: {problem}"
                continue
            seen.add(product.asin)
            yield product


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _stream(path: Path, *, pairs: bool = False, progress: Progress | None = None) -> Iterator[Any]:
    """The elements of a JSON list, or the (key, value) pairs of an object, one by one."""
    try:
        import ijson
    except ImportError:
        raise MissingExtra("reading WebShop's files", "webshop") from None
    total = path.stat().st_size
    with path.open("rb") as file:
        try:
            if pairs:
                yield from ijson.kvitems(file, "", use_float=True)
            else:
                for number, element in enumerate(ijson.items(file, "item", use_float=True)):
                    if progress is not None and number % 100 == 0:
                        progress(file.tell(), total)
                    yield element
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 ({error}): convert it first") from error
        except ijson.JSONError as error:
            where = f"near byte {file.tell()}"
            what = "not UTF-8" if not _is_utf8(file) else "no complete JSON"
            raise DataError(f"{path} is {what} {where} ({error}): get the file again") from error
    if progress is not None:
        progress(total, total)


def _is_utf8(file: IO[bytes]) -> bool:
    file.seek(0)
    try:
        for line in file:
            line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Nouns:
    """Nouns that need no tagger: of ``nouns.json`` (``{title: [noun, ...]}``), else of catalogues
    compiled before that hold the product under the same title."""

    def __init__(self, path: Path | None, earlier: Sequence[Catalogue]) -> None:
        pairs = () if path is None else _stream(path, pairs=True)
        self._given = {title: tuple(map(str, nouns)) for title, nouns in pairs}
        self._earlier = earlier

    def of(self, product: Product) -> tuple[str, ...] | None:
        """The nouns of the product's title; None where they are not known."""
        given = self._given.get(product.title)
        return self._tagged_before(product) if given is None else given

    def _tagged_before(self, product: Product) -> tuple[str, ...] | None:
        for catalogue in self._earlier:
            try:
                known = catalogue.product(catalogue.number(product.asin))
            except KeyError:
                continue
            if known.title == product.title:
                return known.nouns
        return None


def _prepared(
    batches: Iterable[tuple[int, list[Product]]], known: _Nouns, workers: int
) -> Iterator[tuple[list[Product], Postings]]:
    """Analysed and tagged batches in order, at most two per worker in flight."""
    jobs = ((first, products, [known.of(p) for p in products]) for first, products in batches)
    if workers <= 1:
        yield from (_prepare(*job) for job in jobs)
        return
    waiting: deque[Future[tuple[list[Product], Postings]]] = deque()
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for job in jobs:
                waiting.append(pool.submit(_prepare, *job))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise DataError(
            f"one of {workers} processes that analyse the catalogue was ended from outside, perhaps "
            "for lack of memory: free some and try again"
        ) from None


def _prepare(
    first: int, products: list[Product], nouns: list[tuple[str, ...] | None]
) -> tuple[list[Product], Postings]:
    missing = [p.title for p, found in zip(products, nouns, strict=True) if found is None]
    tagged = tag_titles(missing) if missing else iter(())
    complete = [
        replace(product, nouns=next(tagged) if found is None else found)
        for product, found in zip(products, nouns, strict=True)
    ]
    texts = (product.indexed_text() for product in complete)
    return complete, read_postings(map(analyse, texts), range(first, first + len(products)))


def _read_people(path: Path | None, places: dict[str, int]) -> list[HumanRow]:
    """People's goals in the order of the catalogue's products; those without attributes are left out."""
    if path is None:
        return []
    found = {asin: rows for asin, rows in _stream(path, pairs=True) if asin in places}
    return [
        HumanRow(
            places[asin],
            str(row["instruction"]),
            tuple(map(str, row["instruction_attributes"])),
            tuple(map(str, row.get("instruction_options") or ())),
        )
        for asin in places
        for row in found.get(asin, ())
        if isinstance(row, dict) and row.get("instruction_attributes") and row.get("instruction")
    ]
