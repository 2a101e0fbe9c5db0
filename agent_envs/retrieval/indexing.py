"""Index folders: built from a corpus file in shards, so that a broken build goes on; opened memory-mapped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.core.errors import DataError, MissingExtra, RetrieverError, one_of
from agent_envs.core.files import write_atomic
from agent_envs.retrieval.bm25 import Index, Postings, build_index, read_postings
from agent_envs.retrieval.corpus import JsonlCorpus, find_lines
from agent_envs.retrieval.documents import Document
from agent_envs.retrieval.encoder import DEFAULT, SentenceEncoder
from agent_envs.retrieval.local import BM25Retriever, DenseRetriever
from agent_envs.retrieval.words import terms

VERSION = 1
SHARD = {"bm25": 50_000, "dense": 2_048}  # documents
_NAME = "retriever.json"
Progress = Callable[[int, int], None]


def build(
    corpus: str | Path,
    folder: str | Path,
    kind: str = "bm25",
    *,
    model: str = DEFAULT,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Index a corpus file; a build that broke off goes on where it was.

    Returns:
        What was built: ``kind``, ``documents``, ``seconds`` of this call, ``path``.

    Raises:
        DataError: the corpus is absent, empty, or holds a line that is no document.
        RetrieverError: the folder holds the index of another corpus.
    """
    one_of("kind", kind, SHARD)
    begun, corpus, folder = time.monotonic(), Path(corpus).resolve(), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "version": VERSION, "kind": kind, "corpus": str(corpus), "bytes": _size(corpus),
        **({"model": model} if kind == "dense" else {}),
    }  # fmt: skip
    _claim(folder, about)
    starts = find_lines(corpus)
    documents = JsonlCorpus(corpus, starts)
    shards = range(0, len(documents), SHARD[kind])
    write_shard = _postings_writer() if kind == "bm25" else _vectors_writer(model)
    for first in shards:
        path = folder / f"shard-{first:010d}.npz"
        if not path.is_file():
            write_shard(path, documents[first : first + SHARD[kind]], first)
        progress(min(first + SHARD[kind], len(documents)), len(documents))
    paths = [folder / f"shard-{first:010d}.npz" for first in shards]
    (_join_postings if kind == "bm25" else _join_vectors)(folder, paths, len(documents))
    save_array(folder / "lines.npy", starts)
    write_atomic(
        folder / _NAME,
        json.dumps({**about, "documents": len(documents), "complete": True}).encode(),
    )
    for path in paths:
        path.unlink()
    return {
        "path": str(folder), "kind": kind, "documents": len(documents),
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def open_index(folder: str | Path, *, device: str | None = None) -> BM25Retriever | DenseRetriever:
    """A retriever over a folder that :func:`build` filled; arrays are mapped, not read.

    Raises:
        RetrieverError: there is no index, or it is not complete; the message holds the command.
        DataError: its corpus changed or is gone.
    """
    folder = Path(folder)
    about = _about(folder)
    if not about.get("complete"):
        raise RetrieverError(
            f"{folder}: no complete index; build it: agent-envs retriever index CORPUS.jsonl --out {folder}"
        )
    corpus = Path(about["corpus"])
    if _size(corpus) != about["bytes"]:
        raise DataError(f"{corpus} changed since {folder} was built from it: index it again")
    documents = JsonlCorpus(corpus, np.load(folder / "lines.npy", mmap_mode="r"))
    if about["kind"] == "dense":
        encoder = SentenceEncoder(about["model"], device=device)
        return DenseRetriever(documents, encoder, read_faiss(folder / "vectors.faiss"))
    parts = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    return BM25Retriever(documents, Index(**parts, size=len(documents)))


def open_faiss(
    index: str | Path, corpus: str | Path, *, model: str = DEFAULT, device: str | None = None
) -> DenseRetriever:
    """A faiss file of another system (Search-R1's ``e5_Flat.index``) over its corpus (``wiki-18.jsonl``)."""
    corpus = Path(corpus)
    documents = JsonlCorpus(corpus, find_lines(corpus))
    return DenseRetriever(documents, SentenceEncoder(model, device=device), read_faiss(Path(index)))


def read_faiss(path: Path) -> Any:
    """A faiss index, memory-mapped where its kind allows it."""
    faiss = import_faiss()
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    except RuntimeError as error:
        raise RetrieverError(f"{path}: no faiss index can be read from it: {error}") from error


def import_faiss() -> Any:
    """The faiss module, or MissingExtra."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtra("dense retrieval", "search") from error
    return faiss


def flat_index(vectors: np.ndarray) -> Any:
    """An exact inner-product index of (n, d) vectors."""
    index = import_faiss().IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


# -- inside -----------------------------------------------------------------------------------------

_ARRAYS = ("keys", "starts", "documents", "impacts")


def _about(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / _NAME).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RetrieverError(
            f"{folder / _NAME} is damaged ({error}): build the index again"
        ) from error


def _claim(folder: Path, about: dict[str, Any]) -> None:
    found = _about(folder)
    same = {key for key in about if found.get(key) == about[key]}
    if found and not same >= about.keys() - {"bytes"}:
        raise RetrieverError(
            f"{folder} holds another index ({found.get('kind')} of {found.get('corpus')}): "
            "name another folder, or delete it"
        )
    if "bytes" not in same:  # a new index, or its corpus was changed
        for path in folder.glob("shard-*.npz"):
            path.unlink()
        write_atomic(folder / _NAME, json.dumps(about).encode())


def _size(corpus: Path) -> int:
    try:
        return corpus.stat().st_size
    except OSError as error:
        raise DataError(f"{corpus}: no corpus there: {error.strerror}") from error


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a ``.npy`` file that is whole or absent, also where two processes write it."""
    part = path.with_suffix(f".{os.getpid()}.npy")
    np.save(part, array)
    part.replace(path)


def _save_shard(path: Path, **arrays: Any) -> None:
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    part.replace(path)


def _postings_writer() -> Callable[[Path, Sequence[Document], int], None]:
    def write(path: Path, documents: Sequence[Document], first: int) -> None:
        texts = (terms(document.contents) for document in documents)
        found = read_postings(texts, range(first, first + len(documents)))
        _save_shard(
            path, keys=found.keys, documents=found.documents, counts=found.counts,
            lengths=found.lengths,
        )  # fmt: skip

    return write


def _vectors_writer(model: str) -> Callable[[Path, Sequence[Document], int], None]:
    import_faiss()  # a missing one should not be noticed after hours
    encoder = SentenceEncoder(model)

    def write(path: Path, documents: Sequence[Document], first: int) -> None:
        vectors, _ = encoder.encode([document.contents for document in documents], query=False)
        _save_shard(path, vectors=vectors)

    return write


def _join_postings(folder: Path, paths: Sequence[Path], size: int) -> None:
    batches = [Postings(**np.load(path)) for path in paths]
    index = build_index(batches, size, np.concatenate([batch.lengths for batch in batches]))
    for name in _ARRAYS:
        save_array(folder / f"{name}.npy", getattr(index, name))


def _join_vectors(folder: Path, paths: Sequence[Path], size: int) -> None:
    faiss = import_faiss()
    index = None
    for path in paths:
        vectors = np.load(path)["vectors"]
        index = faiss.IndexFlatIP(vectors.shape[1]) if index is None else index
        index.add(vectors)
    part = folder / "vectors.part"
    faiss.write_index(index, str(part))
    part.replace(folder / "vectors.faiss")
