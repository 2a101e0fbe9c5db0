"""Retrievers in this process: BM25 over an inverted index, dense over vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from agent_envs.core.errors import RetrieverError
from agent_envs.retrieval.bm25 import Index, build_index, read_postings
from agent_envs.retrieval.documents import Document, Found, Hit
from agent_envs.retrieval.words import terms

LONGEST_QUERY = 256  # terms (BM25) that are read of a query


def _refuse_none(documents: Sequence[Document]) -> None:
    if not len(documents):
        raise RetrieverError("the index is empty: there is nothing to search")


class BM25Retriever:
    """Full-text search; equal scores go by the documents' order. Deterministic on every machine.

    Args:
        documents: the corpus.
        index: of the same documents; made here where it is None.

    Raises:
        RetrieverError: there are no documents.
    """

    def __init__(self, documents: Sequence[Document], index: Index | None = None) -> None:
        self.documents = documents
        _refuse_none(documents)
        if index is None:
            found = read_postings((terms(d.contents) for d in documents), range(len(documents)))
            index = build_index([found], len(documents), found.lengths)
        self._index = index

    def search(self, queries: Sequence[str], topk: int) -> list[Found]:
        known: dict[str, Found] = {}  # replicas of a group often ask the same
        for query in queries:
            if query not in known:
                known[query] = self._search(query, topk)
        return [known[query] for query in queries]

    def _search(self, query: str, topk: int) -> Found:
        words = terms(query)
        best = self._index.search(words[:LONGEST_QUERY], topk)
        hits = tuple(Hit(self.documents[number], score) for number, score in best)
        return Found(hits, cut=len(words) > LONGEST_QUERY)


class Encoder(Protocol):
    """Texts to vectors of length one."""

    def encode(self, texts: Sequence[str], *, query: bool) -> tuple[np.ndarray, list[bool]]:
        """float32 (n, d), and which texts were cut to the model's limit."""


class DenseRetriever:
    """Search by nearest vectors.

    Args:
        documents: the corpus.
        encoder: of queries.
        index: a faiss index (or anything with its ``search``) over the documents, in their order.

    Raises:
        RetrieverError: there are no documents, or not as many as vectors.
    """

    def __init__(self, documents: Sequence[Document], encoder: Encoder, index: Any) -> None:
        self.documents, self._encoder, self._index = documents, encoder, index
        _refuse_none(documents)
        if index.ntotal != len(documents):
            raise RetrieverError(
                f"the index holds {index.ntotal} vectors, the corpus {len(documents)} documents: "
                "they do not belong together"
            )

    def search(self, queries: Sequence[str], topk: int) -> list[Found]:
        if not queries:
            return []
        different = list(dict.fromkeys(queries))
        vectors, cut = self._encoder.encode(different, query=True)
        scores, numbers = self._index.search(vectors, min(topk, len(self.documents)))
        known = {
            query: Found(
                # faiss pads with -1, which would be the last document (FIELD_CASES F051)
                tuple(
                    Hit(self.documents[int(n)], float(s))
                    for n, s in zip(row, values, strict=True)
                    if n >= 0
                ),
                cut=was_cut,
            )
            for query, row, values, was_cut in zip(different, numbers, scores, cut, strict=True)
        }
        return [known[query] for query in queries]
