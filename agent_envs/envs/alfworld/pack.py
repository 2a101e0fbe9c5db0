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
from agent_envs.envs.alfworld.game import class_word
from agent_envs.envs.alfworld.generator import can_contain
from agent_envs.envs.alfworld.problem import Goal, Problem
from agent_envs.envs.alfworld.tables import properties

MAGIC = b"agent-envs ALFWorld pack 1\n"
_LENGTH = struct.Struct("<Q")
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6}]


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


def _renamed(problem: Problem) -> tuple[list[str], dict[str, set[tuple[str, str]]]]:
    """Class words in id order, and all facts but canContain with ranks in place of coordinates."""
    facts = {k: v for k, v in problem.facts.items() if k != "cancontain" and v}
    types = {second for k in ("receptacletype", "objecttype") for _, second in facts.get(k, ())}
    ids = sorted(
        {i for pairs in facts.values() for pair in pairs for i in pair if i and i not in types}
    )
    words = [_word(i) for i in ids]
    new = {
        old: _identifier(word, rank)
        for rank, (old, word) in enumerate(zip(ids, words, strict=True))
    }
    return words, {
        name: {(new.get(a, a), new.get(b, b)) for a, b in pairs} for name, pairs in facts.items()
    }


def pack_problem(problem: Problem) -> dict[str, Any]:
    """JSON-able form of a problem; :func:`unpack_problem` gives an equivalent one back."""
    words, facts = _renamed(problem)
    given = sorted(set(problem.facts.get("cancontain", ())))
    row: dict[str, Any] = {
        "task": problem.task,
        "goal": asdict(problem.goal),
        "walkthrough": "\n".join(problem.walkthrough),
        "annotations": list(problem.annotations),
        "legacy": problem.legacy,
        # None: the global canContain table, restricted to the types of the scene
        "can": None if given == can_contain(facts) else given,
        "ids": " ".join(words),
    }
    row["layout"] = _pack_layout(words, facts)
    expected = _unpack_layout(words, row["layout"])
    more = {
        name: [sorted(facts.get(name, set()) - expected.get(name, set())),
               sorted(expected.get(name, set()) - facts.get(name, set()))]
        for name in sorted(facts.keys() | expected.keys())
    }  # fmt: skip
    row["more"] = {name: change for name, change in more.items() if change != [[], []]}
    return row


def unpack_problem(row: Mapping[str, Any]) -> Problem:
    """The inverse of :func:`pack_problem`, up to the renaming of ids."""
    facts = _unpack_layout(row["ids"].split(" "), row["layout"])
    for name, (added, removed) in row["more"].items():
        facts[name] = (facts.get(name, set()) | set(map(tuple, added))) - set(map(tuple, removed))
    listed = {name: sorted(pairs) for name, pairs in facts.items()}
    given, goal = row["can"], row["goal"]
    listed["cancontain"] = can_contain(listed) if given is None else [(a, b) for a, b in given]
    return Problem(
        task=row["task"],
        facts=listed,
        goal=Goal(**{**goal, "properties": tuple(goal["properties"])}),
        walkthrough=tuple(filter(None, row["walkthrough"].split("\n"))),
        legacy=row["legacy"],
        annotations=tuple(row["annotations"]),
    )


# -- a room as short strings ---------------------------------------------------------------------
#
# "kinds": one letter per id in id order (r, o, l, a for the agent); "places": the location number of
# each receptacle;
# "opens": 0 or 1 for each; "holds": the receptacle number of each object, "-" for scenery;
# "lies": the location number of each object, "" where it is its receptacle's; "start". Types follow
# from class words, properties from types; what deviates from all this is listed apart ("more").


def _pack_layout(words: list[str], facts: dict[str, set[tuple[str, str]]]) -> dict[str, str]:
    ids = [_identifier(word, rank) for rank, word in enumerate(words)]
    receptacles = sorted({r for r, _ in facts.get("receptacleatlocation", ())})
    places = sorted(i for i in ids if i.startswith("loc_bar_"))
    kinds = dict.fromkeys(receptacles, "r") | dict.fromkeys(places, "l")
    kinds |= {agent: "a" for agent, _ in facts["atlocation"]}
    objects = [i for i in ids if i not in kinds]
    number = {i: str(n) for group in (receptacles, places) for n, i in enumerate(group)}
    at = dict(sorted(facts["receptacleatlocation"], reverse=True))
    inside = dict(sorted(facts.get("inreceptacle", ()), reverse=True))
    lying = dict(sorted(facts.get("objectatlocation", ()), reverse=True))
    opens = {r for r, _ in facts.get("openable", ())}
    return {
        "kinds": "".join(kinds.get(i, "o") for i in ids),
        "places": " ".join(number.get(at[r], "-") for r in receptacles),
        "opens": "".join("01"[r in opens] for r in receptacles),
        "holds": " ".join(number.get(inside.get(o, ""), "-") for o in objects),
        "lies": " ".join(
            "" if lying.get(o) == at.get(inside.get(o, "")) else number.get(lying.get(o, ""), "-")
            for o in objects
        ),
        "start": number.get(sorted(facts["atlocation"])[0][1], "-"),
    }


def _unpack_layout(words: list[str], layout: Mapping[str, str]) -> dict[str, set[tuple[str, str]]]:
    groups: dict[str, list[str]] = {"r": [], "o": [], "l": [], "a": []}
    types: dict[str, str] = {}
    for rank, (word, kind) in enumerate(zip(words, layout["kinds"], strict=True)):
        identifier = _identifier(word, rank)
        groups[kind].append(identifier)
        types[identifier] = class_word(identifier) + "type"
    receptacles, objects, places = groups["r"], groups["o"], groups["l"]

    def pick(group: list[str], number: str) -> str:
        return group[int(number)] if number.isdecimal() else ""

    at = {r: pick(places, n) for r, n in zip(receptacles, layout["places"].split(" "), strict=True)}
    inside = dict(
        zip(objects, (pick(receptacles, n) for n in layout["holds"].split(" ")), strict=True)
    )
    lying = {
        o: at.get(inside[o], "") if n == "" else pick(places, n)
        for o, n in zip(objects, layout["lies"].split(" "), strict=True)
    }
    start = pick(places, layout["start"])
    facts: dict[str, set[tuple[str, str]]] = {
        "receptacleatlocation": {(r, place) for r, place in at.items() if place},
        "receptacletype": {(r, types[r]) for r in receptacles},
        "objecttype": {(o, types[o]) for o in objects},
        "openable": {
            (r, "") for r, c in zip(receptacles, layout["opens"], strict=True) if c == "1"
        },
        "inreceptacle": {(o, r) for o, r in inside.items() if r},
        "objectatlocation": {(o, place) for o, place in lying.items() if place},
        "atlocation": {("agent1", start)} if start else set(),
    }
    for o in objects:
        for name in properties().get(types[o], ()):
            facts.setdefault(name, set()).add((o, ""))
    return facts


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
                if length > path.stat().st_size:
                    raise ValueError("its header is longer than the file")
                header = json.loads(lzma.decompress(file.read(length)))
            self.games: dict[str, tuple[int, int]] = {
                k: tuple(v) for k, v in header["games"].items()
            }
            self.skipped: dict[str, int] = header["skipped"]
            self._sizes: list[int] = header["blocks"]
        except FileNotFoundError:
            raise DataError(f"no imported ALFWorld pack at {path}: {remedy}") from None
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            struct.error,
            lzma.LZMAError,
        ) as error:
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
