"""The task ids of the user's AppWorld data. Only the lists of ids are read."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

from agent_envs.core.errors import DataError, OptionError
from agent_envs.core.tasks import ListedTasks

SPLITS = ("train", "dev", "test_normal", "test_challenge")


class RealTasks(ListedTasks):
    """Splits and ids as ``data/datasets/*.txt`` list them.

    Args:
        root: the folder that holds AppWorld's ``data``.

    Raises:
        DataError: no lists of tasks are there.
    """

    def __init__(self, root: str) -> None:
        folder = Path(root) / "data" / "datasets"
        splits = {
            path.stem: tuple(path.read_text(encoding="utf-8").split())
            for path in sorted(folder.glob("*.txt"), key=_order)
        }
        splits = {name: ids for name, ids in splits.items() if ids}
        if not splits:
            raise DataError(
                f"no lists of tasks in {folder}: appworld_root must be the folder that holds AppWorld's data "
                f"(appworld install && appworld download data --root {root})"
            )
        super().__init__(splits, Path(root).absolute().name)


def _order(path: Path) -> tuple[int, str]:
    return (SPLITS.index(path.stem) if path.stem in SPLITS else len(SPLITS), path.stem)


@lru_cache(maxsize=8)
def check_installation(python: str, root: str) -> None:
    """Whether servers can be started; OptionError with the commands that are missing where not."""
    try:
        found = subprocess.run(  # noqa: S603 - the user's own interpreter
            [python, "-c", "from importlib import metadata; print(metadata.version('appworld'))"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OptionError(f"appworld_python {python!r} cannot be run: {error}") from error
    if found.returncode:
        raise OptionError(
            f"AppWorld is not installed for {python}; install it and its data:\n"
            + how_to_install(python, root)
        )


def how_to_install(python: str, root: str) -> str:
    """The commands, a line each."""
    command = Path(python).parent / "appworld"
    return (
        f"  {python} -m pip install appworld\n  {command} install\n"
        f"  {command} download data --root {root}"
    )
