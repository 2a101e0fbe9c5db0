"""Full-text search: BM25 with precomputed impacts, equal to Lucene's to the tie.

The index is a few flat arrays, so that it can lie in a file and be mapped into memory by any number
of processes. Documents are numbered in the order of their ids, which is also how ties are broken.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_envs.envs.webshop.analysis import analyse

K1, B = 0.9, 0.4
RESULTS = 50


@dataclass(frozen=True, slots=True)
class Postings:
    """What one batch of documents holds: parallel arrays of (term key, document, frequency)."""

    keys: npt.NDArray[np.uint64]
    documents: npt.NDArray[np.int32]
    counts: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.int32]  # of the batch's documents


def term_key(term: str) -> int:
    """64 bits that stand for a term; a clash in a million terms has a chance of 1 in 30 million."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little")


def read_postings(texts: Iterable[str], documents: Sequence[int]) -> Postings:
    """Analyse texts; ``documents`` are their numbers."""
    known: dict[str, int] = {}
    keys: list[int] = []
    numbers: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    for text, document in zip(texts, documents, strict=True):
        terms = analyse(text)
        lengths.append(len(terms))
        for term, count in Counter(terms).items():
            key = known.get(term)
            if key is None:
                key = known[term] = term_key(term)
            keys.append(key)
            numbers.append(document)
            counts.append(min(count, 65535))
    return Postings(
        np.array(keys, np.uint64),
        np.array(numbers, np.int32),
        np.array(counts, np.uint16),
        np.array(lengths, np.int32),
    )


@dataclass(frozen=True, slots=True)
class Index:
    """Terms (sorted keys), where each one's postings begin, and the postings themselves."""

    keys: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]  # one more than keys
    documents: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.float32]
    size: int

    def search(self, query: str, limit: int = RESULTS) -> list[tuple[int, float]]:
        """The best ``limit`` documents as (number, score), best first, ties by number."""
        terms = Counter(analyse(query))
        if not terms:
            return []
        wanted = np.array([term_key(term) for term in terms], np.uint64)
        places = np.searchsorted(self.keys, wanted)
        scores = np.zeros(self.size)
        for key, place, times in zip(wanted, places, terms.values(), strict=True):
            if place < len(self.keys) and self.keys[place] == key:
                rows = slice(self.starts[place], self.starts[place + 1])
                impacts = self.impacts[rows]
                scores[self.documents[rows]] += impacts if times == 1 else impacts * times
        return _best(scores.astype(np.float32), limit)


def _best(scores: npt.NDArray[np.float32], limit: int) -> list[tuple[int, float]]:
    found = np.flatnonzero(scores)
    values = scores[found]
    if len(found) > limit:
        least = np.partition(values, len(values) - limit)[len(values) - limit]
        found = found[values >= least]
        values = scores[found]
    order = np.argsort(-values, kind="stable")[:limit]
    return list(zip(found[order].tolist(), values[order].tolist(), strict=True))


def build_index(batches: Sequence[Postings], size: int, lengths: npt.NDArray[np.int32]) -> Index:
    """Sort all postings by term and weigh them. ``lengths``: terms per document, by number."""
    keys, frequency = _count_terms(batches)
    starts = np.concatenate([[0], np.cumsum(frequency)]).astype(np.int64)
    documents = np.empty(starts[-1], np.int32)
    impacts = np.empty(starts[-1], np.float32)
    idf = np.log(1 + (size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    norm = _norms(lengths, size)
    following = starts[:-1].copy()
    for batch in batches:
        term = np.searchsorted(keys, batch.keys)
        order = np.argsort(term, kind="stable")
        term = term[order]
        first = np.searchsorted(term, term)  # where this term's run in the batch begins
        place = following[term] + np.arange(len(term)) - first
        numbers, counts = batch.documents[order], batch.counts[order].astype(np.float32)
        documents[place] = numbers
        weight = idf[term]
        impacts[place] = weight - weight / (1 + counts * norm[numbers])
        present, added = np.unique(term, return_counts=True)
        following[present] += added
    return Index(keys, starts, documents, impacts, size)


def _count_terms(
    batches: Sequence[Postings],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    keys, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for batch in batches:
        found, times = np.unique(batch.keys, return_counts=True)
        merged, back = np.unique(np.concatenate([keys, found]), return_inverse=True)
        counts = np.bincount(back, np.concatenate([counts, times]), len(merged)).astype(np.int64)
        keys = merged
    return keys, counts


def _norms(lengths: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.float32]:
    """1 / (k1 (1 - b + b dl / avgdl)) with Lucene's one-byte document length."""
    average = np.float32(float(lengths.sum(dtype=np.int64)) / size)
    rounded = np.array([norm_length(n) for n in range(int(lengths.max(initial=0)) + 1)], np.float32)
    inverse = 1 / (np.float32(K1) * (np.float32(1 - B) + np.float32(B) * rounded / average))
    found: npt.NDArray[np.float32] = inverse.astype(np.float32)[lengths]
    return found


def norm_length(length: int) -> int:
    """A document's length as its norm byte keeps it: exact below 40, then four significant bits."""
    exact = 24  # Lucene's SmallFloat spends this many codes on exact values ...
    if length < exact:
        return length
    rest = length - exact  # ... and encodes the remainder as a float of four bits
    shift = max(rest.bit_length() - 4, 0)
    return exact + (rest >> shift << shift)
