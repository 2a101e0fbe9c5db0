"""Where ALFWorld games come from: an official download, an imported pack, or the generator.

All three are task sets whose ``problem(task_id)`` gives the game; games are found in sorted order,
so a seed means the same game on every machine.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from agent_envs.core.errors import DataError, OptionError, one_of
from agent_envs.core.files import cache_dir, write_atomic
from agent_envs.core.tasks import TaskSet
from agent_envs.envs.alfworld.game import Game
from agent_envs.envs.alfworld.generator import DIFFICULTIES, SPLITS, generate, task_type_of
from agent_envs.envs.alfworld.pack import Pack, write_pack
from agent_envs.envs.alfworld.problem import Problem, UnsupportedGame, parse_goal, read_game_file
from agent_envs.envs.alfworld.tables import TASK_TYPES

logger = logging.getLogger("agent_envs.alfworld")

GAME_FILE = "game.tw-pddl"
OFFICIAL_SPLITS = ("train", "valid_train", "valid_seen", "valid_unseen")
GAMES_IN_MEMORY = 256
_UNSOLVABLE = re.compile(rb'"solvable":\s*false')
_HELP = (
    "set ALFWORLD_DATA or data_dir to the folder that holds json_2.1.1/ (get it with 'pip install "
    "alfworld && alfworld-download'), or leave both unset for the embedded games"
)


class AlfworldTasks(TaskSet):
    """A task set that can also load its games."""

    skipped: dict[str, int]

    @abstractmethod
    def problem(self, task_id: str) -> Problem:
        """The game of a task id; DataError where it is not here."""

    def task_type(self, task_id: str) -> str:
        """``pick_and_place_simple`` etc.: the second part of an id, up to its first dash."""
        return task_id.split("/")[1].partition("-")[0] if "/" in task_id else ""


class GeneratedTasks(AlfworldTasks):
    """The embedded default. Ids read ``split/task_type/difficulty/index``."""

    splits = tuple(SPLITS)

    def __init__(self, difficulty: str = "full") -> None:
        one_of("difficulty", difficulty, DIFFICULTIES)
        self.difficulty = difficulty
        self.skipped = {}

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        return SPLITS[split]

    def task_id(self, split: str, index: int) -> str:
        index = self.check_index(split, index)
        task_type = task_type_of(split, self.difficulty, index)
        return f"{split}/{task_type}/{self.difficulty}/{index}"

    def problem(self, task_id: str) -> Problem:
        try:
            split, task_type, difficulty, number = task_id.split("/")
            index = self.check_index(split, int(number))
            known = task_type_of(split, difficulty, index)
        except ValueError as error:  # OptionError is one
            raise DataError(f"{task_id!r} is no generated ALFWorld task ({error})") from error
        if known != task_type:
            raise DataError(f"{task_id!r}: that game is of type {known}; made by another version?")
        return generate(split, difficulty, index)


class _RealTasks(AlfworldTasks):
    """Tasks listed by id, per split."""

    def __init__(self, ids: list[str], where: str) -> None:
        self._where = where
        found = sorted({i.partition("/")[0] for i in ids})
        order = {name: i for i, name in enumerate(OFFICIAL_SPLITS)}
        self.splits = tuple(sorted(found, key=lambda s: (order.get(s, len(order)), s)))
        self._ids = {s: sorted(i for i in ids if i.startswith(s + "/")) for s in self.splits}
        if not ids:
            raise DataError(f"no playable ALFWorld game in {where}: {_HELP}")

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        return len(self._ids[split])

    def task_id(self, split: str, index: int) -> str:
        return self._ids[split][self.check_index(split, index)]


class FolderTasks(_RealTasks):
    """An official download, read in place."""

    def __init__(self, data_dir: Path) -> None:
        self.root = find_root(data_dir)
        statuses = _index(self.root)
        self.skipped = dict(Counter(status for status in statuses.values() if status))
        if self.skipped:
            logger.info("%s: skipped games %s", self.root, self.skipped)
        super().__init__([i for i, status in statuses.items() if not status], str(self.root))
        self.source = data_dir.name

    def problem(self, task_id: str) -> Problem:
        path = self.root / task_id / GAME_FILE
        try:
            return read_game_file(path)
        except (OSError, UnsupportedGame) as error:
            raise DataError(f"cannot load game {task_id!r}: {error}") from error

    def annotations(self, task_id: str) -> tuple[str, ...]:
        return read_annotations(self.root / task_id)


class PackTasks(_RealTasks):
    """Games imported with ``agent-envs data import alfworld DIR``."""

    source = "imported"

    def __init__(self, path: Path) -> None:
        self.pack = Pack(path)
        self.skipped = self.pack.skipped
        super().__init__(list(self.pack.games), str(path))

    def problem(self, task_id: str) -> Problem:
        if task_id not in self.pack.games:
            raise DataError(f"the imported pack {self.pack.path} holds no game {task_id!r}")
        return self.pack.problem(task_id)


class TasksOfTypes(TaskSet):
    """Those tasks of another set that are of some types, in its order; ids are the same.

    In an endless split the i-th is the first one at or after the other set's ``i * SPACING``-th.
    """

    SPACING = 64

    def __init__(self, tasks: AlfworldTasks, types: tuple[str, ...]) -> None:
        self._tasks, self._types = tasks, types
        self._found: dict[str, list[int]] = {}
        self.source, self.splits = tasks.source, tasks.splits

    def count(self, split: str) -> int | None:
        one_of("split", split, self.splits)
        places = self._places(split)
        return None if places is None else len(places)

    def task_id(self, split: str, index: int) -> str:
        index = self.check_index(split, index)
        places = self._places(split)
        if places is not None:
            return self._tasks.task_id(split, places[index])
        ids = (self._tasks.task_id(split, i) for i in itertools.count(index * self.SPACING))
        return next(i for i in ids if self.task_type(i) in self._types)

    def task_type(self, task_id: str) -> str:
        return self._tasks.task_type(task_id)

    def _places(self, split: str) -> Sequence[int] | None:
        """Where the tasks of a finite split stand in the other set."""
        if split not in self._found:
            count = self._tasks.count(split)
            if count is None:
                return None
            kinds = [self.task_type(self._tasks.task_id(split, i)) for i in range(count)]
            self._found[split] = [i for i, kind in enumerate(kinds) if kind in self._types]
            if not self._found[split]:
                raise OptionError(
                    f"split {split!r} has no task of type {', '.join(self._types)}; it has: "
                    f"{', '.join(sorted(set(kinds)))}"
                )
        return self._found[split]


def of_types(tasks: AlfworldTasks, types: Iterable[str | int] | None) -> TaskSet:
    """``tasks``, or only those of some types: names, or ALFWorld's numbers 1 to 6.

    Raises:
        OptionError: an unknown type, or none at all.
    """
    if types is None:
        return tasks
    if isinstance(types, str | int):
        raise OptionError(f"task_types must be a list, got {types!r}; valid: [{types!r}]")
    wanted = []
    for name in types:
        number = name if isinstance(name, int) and not isinstance(name, bool) else 0
        kind = TASK_TYPES[number - 1] if 1 <= number <= len(TASK_TYPES) else name
        one_of("task type", kind, TASK_TYPES)
        wanted.append(str(kind))
    if not wanted:
        raise OptionError(f"task_types is empty; valid: {', '.join(TASK_TYPES)}")
    return _typed(tasks, tuple(sorted(set(wanted))))


def pack_path() -> Path:
    """Where an import puts the pack."""
    return cache_dir() / "alfworld" / "games.pack"


def open_tasks(data_dir: str | Path | None, difficulty: str | None) -> AlfworldTasks:
    """``data_dir`` (a folder, or "imported"), else ``$ALFWORLD_DATA``, else the generator.

    Raises:
        DataError: the folder or pack is missing, foreign or corrupt.
        OptionError: a difficulty was asked for with real data, or is unknown.
    """
    chosen = data_dir if data_dir is not None else os.environ.get("ALFWORLD_DATA") or None
    if chosen is None:
        return _generated(difficulty or "full")
    if difficulty is not None:
        raise OptionError(
            f"difficulty={difficulty!r} shapes generated games only, but the data is {str(chosen)!r}: "
            "unset data_dir and ALFWORLD_DATA, or leave difficulty out"
        )
    if str(chosen) == "imported":
        path = pack_path()
        return _packed(path, path.stat().st_mtime_ns if path.exists() else 0)
    return _folder(Path(chosen).expanduser().absolute())


@lru_cache(maxsize=len(DIFFICULTIES))
def _generated(difficulty: str) -> GeneratedTasks:
    return GeneratedTasks(difficulty)


@lru_cache(maxsize=64)
def _typed(tasks: AlfworldTasks, types: tuple[str, ...]) -> TasksOfTypes:
    return TasksOfTypes(tasks, types)


@lru_cache(maxsize=4)
def _packed(path: Path, _changed: int) -> PackTasks:
    return PackTasks(path)


@lru_cache(maxsize=8)
def _folder(path: Path) -> FolderTasks:
    return FolderTasks(path)


@lru_cache(maxsize=GAMES_IN_MEMORY)
def load_game(tasks: AlfworldTasks, task_id: str) -> Game:
    """The compiled game, shared by all replicas of the process that play it."""
    return _compile(tasks.problem(task_id), task_id)


@lru_cache(maxsize=GAMES_IN_MEMORY)
def load_game_file(path: str) -> Game:
    """As :func:`load_game`, for an explicit ``game_file``."""
    try:
        return _compile(read_game_file(path), file_task_id(path))
    except FileNotFoundError:
        raise DataError(f"no game file at {path}") from None
    except (OSError, UnsupportedGame) as error:
        raise DataError(str(error)) from error


def _compile(problem: Problem, task_id: str) -> Game:
    try:
        return Game(problem, task_id)
    except (UnsupportedGame, LookupError) as error:
        raise DataError(f"game {task_id!r} cannot be played: {error}") from error


def file_task_id(path: str) -> str:
    """The task id of a game file: relative to ``json_2.1.1`` where the path holds it."""
    plain = Path(path).as_posix().removesuffix("/" + GAME_FILE)
    return plain.rpartition("json_2.1.1/")[2]


def read_annotations(folder: Path) -> tuple[str, ...]:
    """People's own words for the task, from ``traj_data.json`` beside the game (often absent)."""
    try:
        content = json.loads((folder / "traj_data.json").read_bytes())
        return tuple(str(a["task_desc"]) for a in content["turk_annotations"]["anns"])
    except FileNotFoundError:
        return ()
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / 'traj_data.json'} holds no annotations: {error!r}") from error


# -- the index of a download -------------------------------------------------------------------


def find_root(data_dir: Path) -> Path:
    """``json_2.1.1`` itself or inside ``data_dir``."""
    if not data_dir.is_dir():
        raise DataError(f"ALFWorld data: no folder at {data_dir}: {_HELP}")
    inside = data_dir / "json_2.1.1"
    root = inside if inside.is_dir() else data_dir
    if not any((root / split).is_dir() for split in OFFICIAL_SPLITS):
        raise DataError(
            f"ALFWorld data: looked for json_2.1.1/<split>/**/{GAME_FILE} (splits "
            f"{', '.join(OFFICIAL_SPLITS)}) in {data_dir}, found none: {_HELP}"
        )
    return root


def _game_files(root: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Task ids and file facts (None: unreadable) of all games; links are followed once."""
    seen: set[tuple[int, int]] = set()
    for split in OFFICIAL_SPLITS:
        for folder, subfolders, files in os.walk(root / split, followlinks=True):
            here = os.stat(folder)
            if (here.st_dev, here.st_ino) in seen:  # a link that leads back up
                subfolders.clear()
                continue
            seen.add((here.st_dev, here.st_ino))
            if GAME_FILE in files:
                task_id = Path(folder).relative_to(root).as_posix()
                try:
                    yield task_id, os.stat(os.path.join(folder, GAME_FILE))
                except OSError:
                    yield task_id, None


def _status(path: Path, task_id: str) -> str:
    """Why a game is left out; "" for one that can be played."""
    if "movable" in task_id or "Sliced" in task_id:
        return "movable or sliced (not part of ALFWorld's text games)"
    try:
        content = path.read_bytes()
    except OSError:
        return "unreadable"
    if _UNSOLVABLE.search(content):
        return "marked unsolvable"
    start = content.find(b"(:goal")
    if start < 0:
        return "not a game file"
    try:
        parse_goal(content[start:].replace(b"\\n", b" ").decode("utf-8", "replace").lower())
    except UnsupportedGame:
        return "unsupported goal"
    return ""


def _index(root: Path) -> dict[str, str]:
    """Task id -> status of all games, from a cache that knows files by size and mtime."""
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    cache = cache_dir() / "alfworld" / f"index-{name}.json"
    known = _read_index(cache)
    found: dict[str, list[object]] = {}
    for task_id, stat in _game_files(root):
        old = known.get(task_id)
        facts = [-1, -1] if stat is None else [stat.st_size, stat.st_mtime_ns]
        if not isinstance(old, list) or len(old) != 3 or old[:2] != facts:
            old = [*facts, _status(root / task_id / GAME_FILE, task_id)]
        found[task_id] = old
    if found != known:
        try:
            write_atomic(cache, json.dumps(found).encode())
        except OSError as error:  # a read-only home costs a second at start, nothing else
            logger.info("index of %s not cached: %s", root, error)
    return {task_id: str(row[2]) for task_id, row in found.items()}


def _read_index(cache: Path) -> dict[str, object]:
    try:
        content = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def import_folder(
    data_dir: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[dict[str, int], dict[str, int]]:
    """Pack all games of a download for ``data_dir="imported"``.

    Returns games per split, and the number of games left out by reason.

    Args:
        progress: called with (games read, games in all).
    """
    tasks = FolderTasks(data_dir.absolute())
    ids = [tasks.task_id(s, i) for s in tasks.splits for i in range(tasks.count(s) or 0)]
    skipped = Counter(tasks.skipped)

    def games() -> Iterator[tuple[str, Problem]]:
        for done, task_id in enumerate(ids, 1):
            try:
                problem = tasks.problem(task_id)
                _compile(problem, task_id)
            except DataError as error:
                logger.warning("left out: %s", error)
                skipped["cannot be played"] += 1
            else:
                yield task_id, replace(problem, annotations=tasks.annotations(task_id))
            progress(done, len(ids))

    counts = write_pack(pack_path(), games(), skipped)
    return counts, dict(skipped)
