"""A corpus file (JSON lines) that is looked into by line, not loaded."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from agent_envs.core.errors import DataError
from agent_envs.retrieval.documents import Document, read_hit

_REPORT_EVERY = 10_000


def find_lines(path: Path, progress: Callable[[int], None] = lambda done: None) -> np.ndarray:
    """Where each line that is not blank begins, uint64.

    Raises:
        DataError: the file is absent or holds no line.
    """
    starts: list[int] = []
    try:
        with path.open("rb") as file:
            position = 0
            for line in file:
                if not line.isspace():
                    starts.append(position)
                    if len(starts) % _REPORT_EVERY == 0:
                        progress(len(starts))
                position += len(line)
    except OSError as error:
        raise DataError(f"{path}: cannot read the corpus: {error.strerror}") from error
    if not starts:
        raise DataError(
            f"{path}: the corpus is empty; it takes one JSON object per line, with id and contents"
        )
    return np.array(starts, np.uint64)


class JsonlCorpus(Sequence[Document]):
    """Documents of a file, read from the disk when asked for.

    Args:
        path: one object per line: ``id`` (default: the line's number), and ``contents``, or ``title`` and
            ``text``.
        starts: what :func:`find_lines` returned for it.
    """

    def __init__(self, path: Path, starts: np.ndarray) -> None:
        self.path, self._starts = path, starts
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = int(self._starts[index])
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : end if end >= 0 else len(self._bytes)]
        return self._read(line, range(len(self))[index])

    def __iter__(self) -> Iterator[Document]:
        return (self[i] for i in range(len(self)))

    def _read(self, line: bytes, index: int) -> Document:
        try:
            value = json.loads(line.decode("utf-8"))
            document = read_hit(value).document
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path}: document {index} is not UTF-8 ({error.reason})"
            ) from error
        except ValueError as error:
            raise DataError(f"{self.path}: document {index}: {error}") from error
        return document if document.id else document._replace(id=str(index))
