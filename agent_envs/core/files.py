"""Files that are either whole or absent, and where caches live."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The user's cache folder of the hub: ``$AGENT_ENVS_CACHE``, else below ``$XDG_CACHE_HOME``."""
    given = os.environ.get("AGENT_ENVS_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError:  # no HOME and no passwd entry, as in some containers
            base = tempfile.gettempdir()
    return Path(base) / "agent-envs"


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """An ``OSError`` of what is written inside names ``path``.

    Opening a file names it in its errors; writing to one (a full disk, a quota) does not.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # else a name would hide the message
            error.filename = error.filename or str(path)
        raise


def write_atomic(path: str | Path, content: bytes) -> None:
    """Write, fsync, rename: readers see the old file or the new one, never a half."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with named(path), os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
