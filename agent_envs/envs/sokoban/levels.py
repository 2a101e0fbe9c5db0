"""Level files in the common XSB text format: Boxoban files and other collections.

``#`` wall, blank (or ``-``, ``_``) floor, ``.`` target, ``$`` box, ``*`` box on target, ``@`` player,
``+`` player on target. Levels are separated by lines that hold anything else (titles, comments);
those that begin with ``;`` name the level that follows, as in Boxoban.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from agent_envs.core.errors import DataError, OptionError
from agent_envs.core.tasks import ListedTasks
from agent_envs.envs.sokoban.room import Room, RoomError, checked_room

_FLOOR = " -_"
_SYMBOLS = frozenset("#.$*@+" + _FLOOR)


def parse_level(rows: list[str]) -> Room:
    """One level; RoomError says what is wrong with it."""
    width = max(map(len, rows))
    text = "".join(row.ljust(width) for row in rows)

    def mask(symbols: str) -> int:
        return sum(1 << i for i, c in enumerate(text) if c in symbols)

    players = [i for i, c in enumerate(text) if c in "@+"]
    return checked_room(len(rows), width, mask("#"), mask(".*+"), mask("$*"), players)


def level_text(room: Room) -> str:
    """A room in XSB symbols, the inverse of :func:`parse_level`."""
    rows = []
    for r in range(room.height):
        row = ""
        for c in range(room.width):
            i = r * room.width + c
            on_target = room.targets >> i & 1
            if room.walls >> i & 1:
                row += "#"
            elif room.boxes >> i & 1:
                row += "*" if on_target else "$"
            elif i == room.player:
                row += "+" if on_target else "@"
            else:
                row += "." if on_target else " "
        rows.append(row)
    return "\n".join(rows)


def read_levels(path: Path) -> Iterator[tuple[str, Room]]:
    """(name, room) of all levels in a file or in all ``.txt`` and ``.xsb`` files of a folder.

    Raises:
        DataError: nothing there, or a level that cannot be played; it names file, level and line.
    """
    found = False
    for file in _files(path):
        for name, room in _read_file(file):
            found = True
            yield (
                f"{file.relative_to(path).as_posix() if path.is_dir() else file.name}#{name}",
                room,
            )
    if not found:
        raise DataError(f"no Sokoban levels (XSB text) in {path}")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.suffix in (".txt", ".xsb"))


def _read_file(file: Path) -> Iterator[tuple[str, Room]]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read Sokoban levels from {file}: {error}") from error
    rows: list[str] = []
    name, number, first = "", 0, 0
    for line_number, line in enumerate([*lines, ""], 1):
        line = line.expandtabs().rstrip()
        if "#" in line and set(line) <= _SYMBOLS:
            first = first if rows else line_number
            rows.append(line)
            continue
        where = f"{file}, level {name or number}, line"
        if rows and "#" in line and not line.startswith(";"):
            odd = sorted(set(line) - _SYMBOLS)
            raise DataError(f"{where} {line_number}: {odd} is no symbol of a level")
        if rows:
            try:
                yield name or str(number), parse_level(rows)
            except RoomError as error:
                raise DataError(f"{where} {first}: {error}") from error
            rows, name, number = [], "", number + 1
        if line.startswith(";"):
            name = line[1:].strip()


class LevelTasks(ListedTasks):
    """The levels of a file or folder, as one split ``train`` in file order.

    Attributes:
        shape: height and width of the largest level, each on its own.
        most_boxes: the largest number of boxes.
    """

    def __init__(self, path: Path) -> None:
        self.rooms: dict[str, Room] = {}
        for name, room in read_levels(path):
            task_id, copies = name, 1
            while task_id in self.rooms:
                copies += 1
                task_id = f"{name}~{copies}"
            self.rooms[task_id] = room
        rooms = self.rooms.values()
        self.shape = max(r.height for r in rooms), max(r.width for r in rooms)
        self.most_boxes = max(r.boxes.bit_count() for r in rooms)
        super().__init__({"train": list(self.rooms)}, path.name)

    def room(self, task_id: str) -> Room:
        if task_id not in self.rooms:
            raise DataError(f"the level file holds no level {task_id!r}")
        return self.rooms[task_id]


def open_levels(path: str | Path) -> LevelTasks:
    """Levels of a path; read once per process while its files stay as they are."""
    found = Path(path).expanduser().absolute()
    if not str(path) or not found.exists():
        raise OptionError(f"levels: nothing at {str(path)!r}")
    stamps = tuple((f, f.stat().st_mtime_ns, f.stat().st_size) for f in _files(found))
    return _open(found, stamps)


@lru_cache(maxsize=4)
def _open(path: Path, _stamps: tuple[tuple[Path, int, int], ...]) -> LevelTasks:
    return LevelTasks(path)
