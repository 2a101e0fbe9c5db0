"""One small file with all games of a download; one game opens without decoding the rest.

Layout: magic line, 8-byte length of the header, header, blocks. Header and blocks are xz streams
of JSON. A block holds the games of one scene (they share most of their text, so they compress
well together). Coordinates play no part in a game, so an id is stored as its class word only: ids
are listed in string order, and their rank stands in for the coordinates
(``ALFWORLD_ENGINE.md`` section 11, "Compact storage").
"""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_envs.core.errors import DataError
from agent_envs.core.files import write_atomic
from agent_envs.envs.alfworld.generator import can_contain
from agent_envs.envs.alfworld.problem import Goal, Problem

MAGIC = b"agent-envs ALFWorld pack 1\n"
_LENGTH = struct.Struct("<Q")
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def _word(identifier: str) -> str:
    """The class word of an id with a mark for basins; ids without one keep their whole text."""
    head, bar, _ = identifier.partition("_bar_")
    if not bar:
        return "=" + identifier
    return head + "*" if "basin" in identifier else head


def _identifier(word: str, rank: int) -> str:
    if word.startswith("="):
        return word[1:]
    head = word.rstrip("*")
    return f"{head}_bar_{rank:04d}" + ("_bar_basin" if word.endswith("*") else "")


def pack_problem(problem: Problem) -> dict[str, Any]:
    """JSON-able form of a problem; :func:`unpack_problem` gives an equivalent one back."""
    facts = {k: v for k, v in problem.facts.items() if k != "cancontain" and v}
    types = {second for k in ("receptacletype", "objecttype") for _, second in facts.get(k, ())}
    ids = sorted(
        {i for pairs in facts.values() for pair in pairs for i in pair if i and i not in types}
    )
    rank = {identifier: i for i, identifier in enumerate(ids)}
    given = sorted(set(problem.facts.get("cancontain", ())))
    return {
        "task": problem.task,
        "goal": asdict(problem.goal),
        "walkthrough": list(problem.walkthrough),
        "annotations": list(problem.annotations),
        "legacy": problem.legacy,
        "ids": " ".join(_word(i) for i in ids),
        # None: the global canContain table, restricted to the types of the scene
        "can": None if given == can_contain(facts) else given,
        "facts": {
            name: sorted([rank[a], rank.get(b, b)] if b else [rank[a]] for a, b in set(pairs))
            for name, pairs in sorted(facts.items())
        },
    }


def unpack_problem(row: Mapping[str, Any]) -> Problem:
    """The inverse of :func:`pack_problem`, up to the renaming of ids."""
    ids = [_identifier(word, rank) for rank, word in enumerate(row["ids"].split(" "))]

    def name(value: int | str) -> str:
        return ids[value] if isinstance(value, int) else value

    facts = {
        predicate: [(name(pair[0]), name(pair[1]) if len(pair) > 1 else "") for pair in pairs]
        for predicate, pairs in row["facts"].items()
    }
    given = row["can"]
    facts["cancontain"] = can_contain(facts) if given is None else [(a, b) for a, b in given]
    goal = row["goal"]
    return Problem(
        task=row["task"],
        facts=facts,
        goal=Goal(**{**goal, "properties": tuple(goal["properties"])}),
        walkthrough=tuple(row["walkthrough"]),
        legacy=row["legacy"],
        annotations=tuple(row["annotations"]),
    )


def _squeeze(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"))
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, filters=_FILTERS)


def scene_of(task_id: str) -> str:
    """The scene number at the end of a task folder's name (``...-Cabinet-3/trial_..`` -> ``3``)."""
    parts = task_id.split("/")
    return parts[-2].rpartition("-")[2] if len(parts) > 1 else ""


def write_pack(
    path: Path, games: Iterable[tuple[str, Problem]], skipped: Mapping[str, int]
) -> dict[str, int]:
    """Write all games atomically; returns their number per split."""
    scenes: dict[str, list[tuple[str, Problem]]] = {}
    for task_id, problem in games:
        scenes.setdefault(scene_of(task_id), []).append((task_id, problem))
    blocks: list[bytes] = []
    index: dict[str, tuple[int, int]] = {}
    for number, scene in enumerate(sorted(scenes)):
        rows = sorted(scenes[scene], key=lambda item: item[0])
        for position, (task_id, _) in enumerate(rows):
            index[task_id] = (number, position)
        blocks.append(_squeeze([pack_problem(problem) for _, problem in rows]))
    header = _squeeze(
        {"games": index, "blocks": [len(b) for b in blocks], "skipped": dict(skipped)}
    )
    write_atomic(path, MAGIC + _LENGTH.pack(len(header)) + header + b"".join(blocks))
    counts: dict[str, int] = {}
    for task_id in index:
        split = task_id.partition("/")[0]
        counts[split] = counts.get(split, 0) + 1
    return counts


class Pack:
    """Reads a pack; blocks are decoded when one of their games is asked for.

    Raises:
        DataError: the file is missing, foreign or corrupt.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        remedy = "run 'agent-envs data import alfworld DIR' with your ALFWorld download"
        try:
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise ValueError("it does not begin like one")
                (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                header = json.loads(lzma.decompress(file.read(length)))
            self.games: dict[str, tuple[int, int]] = {k: tuple(v) for k, v in header["games"].items()}
            self.skipped: dict[str, int] = header["skipped"]
            self._sizes: list[int] = header["blocks"]
        except FileNotFoundError:
            raise DataError(f"no imported ALFWorld pack at {path}: {remedy}") from None
        except (OSError, ValueError, KeyError, struct.error, lzma.LZMAError) as error:
            raise DataError(f"{path} is no readable ALFWorld pack ({error}): {remedy}") from error
        self._first_block = len(MAGIC) + _LENGTH.size + length
        self._block = lru_cache(maxsize=4)(self._read_block)

    def _read_block(self, number: int) -> list[dict[str, Any]]:
        with self.path.open("rb") as file:
            file.seek(self._first_block + sum(self._sizes[:number]))
            rows: list[dict[str, Any]] = json.loads(lzma.decompress(file.read(self._sizes[number])))
        return rows

    def problem(self, task_id: str) -> Problem:
        """One game; KeyError if the pack does not hold it."""
        block, position = self.games[task_id]
        try:
            return unpack_problem(self._block(block)[position])
        except (OSError, ValueError, LookupError, TypeError, lzma.LZMAError) as error:
            raise DataError(
                f"{self.path}: the block of game {task_id} is corrupt ({error}); run "
                "'agent-envs data import alfworld DIR' again"
            ) from error
