"""One retriever per process and setting, whatever the number of replicas that search with it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from agent_envs.core.errors import OptionError, RetrieverError
from agent_envs.core.files import cache_dir
from agent_envs.retrieval.documents import Document, Retriever
from agent_envs.retrieval.local import BM25Retriever, DenseRetriever

Source = Callable[[], Sequence[Document]]

_REMEMBERED = 2.0  # seconds for which a server that did not answer is not asked again
_FAILED: dict[tuple[str, float, str | None, int], tuple[float, str]] = {}


def open_retriever(
    name: str, documents: Source, *, timeout: float = 10.0, token: str | None = None
) -> Retriever:
    """The retriever that an option names; made once per process.

    Args:
        name: ``bm25`` or ``dense`` over ``documents()``; an index folder
            (``agent-envs retriever index``); or the URL of a server.
        documents: a function that lives as long as the process, such as a module's own.
        timeout: seconds that a call to a server may take.
        token: for a server that wants one; default ``$AGENT_ENVS_RETRIEVER_TOKEN``.

    Raises:
        OptionError: it is none of these.
        RetrieverError, DataError, MissingExtra: it cannot be opened.
    """
    if name.startswith(("http://", "https://")):
        token = token or os.environ.get("AGENT_ENVS_RETRIEVER_TOKEN")
        return _remote(name, timeout, token)
    if name in _EMBEDDED:
        return _embedded(name, documents)
    if Path(name).is_dir():
        return _folder(str(Path(name).resolve()))
    raise OptionError(
        f"unknown retriever {name!r}; valid: {', '.join(_EMBEDDED)}, an index folder "
        "(agent-envs retriever index CORPUS.jsonl --out DIR), or a server's URL"
    )


def _remote(url: str, timeout: float, token: str | None) -> Retriever:
    # a forked worker must not share its parent's connections
    key = (url, timeout, token, os.getpid())
    until, why = _FAILED.get(key, (0.0, ""))
    if time.monotonic() < until:  # the other replicas of a group need not wait for it as well
        raise RetrieverError(why)
    try:
        return _connect(*key)
    except RetrieverError as error:
        _FAILED[key] = time.monotonic() + _REMEMBERED, str(error)
        raise


@lru_cache(maxsize=16)
def _connect(url: str, timeout: float, token: str | None, process: int) -> Retriever:
    from agent_envs.retrieval.remote import RemoteRetriever

    retriever = RemoteRetriever(url, timeout=timeout, token=token)
    retriever.check()
    return retriever


@lru_cache(maxsize=4)
def _folder(path: str) -> Retriever:
    from agent_envs.retrieval.indexing import open_index

    return open_index(path)


@lru_cache(maxsize=4)
def _embedded(name: str, documents: Source) -> Retriever:
    return _EMBEDDED[name](documents())


def _dense(documents: Sequence[Document]) -> Retriever:
    """Vectors of a small corpus, kept in the cache folder: half a minute the first time."""
    from agent_envs.retrieval.encoder import SentenceEncoder
    from agent_envs.retrieval.indexing import flat_index, save_array

    encoder = SentenceEncoder()
    digest = hashlib.sha256(encoder.model.encode())
    for document in documents:
        digest.update(document.contents.encode() + b"\0")
    path = cache_dir() / "search" / f"vectors-{digest.hexdigest()[:16]}.npy"
    if not path.is_file():
        vectors, _ = encoder.encode([document.contents for document in documents], query=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_array(path, vectors)
    return DenseRetriever(documents, encoder, flat_index(np.load(path)))


_EMBEDDED: dict[str, Callable[[Sequence[Document]], Retriever]] = {
    "bm25": BM25Retriever,
    "dense": _dense,
}
