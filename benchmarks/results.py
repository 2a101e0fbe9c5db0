"""Raw outputs with a header each, and the table of claims (``docs/results``) that is made from them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import processor

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
FIELDS = ("command", "revision", "date", "machine", "python", "seconds", "exit code")
RULE = "-" * 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one part: ``state`` is ``ok``, ``skipped`` or ``failed``; ``reason`` says why."""

    name: str
    state: str
    reason: str
    seconds: float


def header(words: Sequence[str], python: str, seconds: float, code: int) -> str:
    """What stands above a raw output; ``words`` is the command as a reader would type it."""
    version = _said(python, "-c", "import platform; print(platform.python_version())")
    # the results themselves are written while the parts run
    changed = _said("git", "status", "--porcelain", "-uno", "--", ".", ":!docs/results")
    revision = _said("git", "rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    values = (
        shlex.join(words),
        revision,
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        processor(),
        version,
        f"{seconds:.0f}",
        str(code),
    )
    return "".join(f"{f}: {v}\n" for f, v in zip(FIELDS, values, strict=True)) + f"{RULE}\n"


def read_raw(path: Path) -> tuple[dict[str, str], str]:
    """Header and output of a raw file; ``ValueError`` names a field that is missing."""
    head, _, output = path.read_text(encoding="utf-8").partition(f"{RULE}\n")
    found = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
    missing = [field for field in ("command", "date", "machine") if not found.get(field)]
    if missing:
        raise ValueError(f"{path}: no {', '.join(missing)} above the output")
    return found, output


def measured(claim: Mapping[str, Any], output: str) -> str:
    """What the raw output holds for a claim: the groups of its pattern ``find``, in their order."""
    found = re.search(claim["find"], output, re.DOTALL)
    if found is None:
        raise ValueError(
            f"{claim['page']}, {claim['quote']!r}: the raw output has no {claim['find']!r}"
        )
    return str(claim.get("show", "{}")).format(*(" ".join(text.split()) for text in found.groups()))


def claim_rows(claims: Iterable[Mapping[str, Any]], out: Path) -> Iterable[dict[str, str]]:
    """One row per claim; where there is no raw output, the row says what there is instead."""
    for claim in claims:
        row = {"page": claim["page"], "quote": claim["quote"], "note": claim.get("note", "")}
        if "raw" not in claim:
            yield row | {name: claim[name] for name in ("command", "date", "machine", "kind")}
            continue
        try:
            head, output = read_raw(out / claim["raw"])
            value = measured(claim, output)
        except (OSError, ValueError) as error:
            yield (
                row
                | dict.fromkeys(("command", "date", "machine"), "-")
                | {"kind": f"none: {error}"}
            )
            continue
        yield row | {
            "kind": "raw output",
            "raw": claim["raw"],
            "found": value,
            **{name: head[name] for name in ("command", "date", "machine")},
        }


def write_tables(out: Path, outcomes: Sequence[Outcome]) -> None:
    """``summary.json`` and the tables of ``README.md``; parts that did not run keep their last line."""
    summary = out / "summary.json"
    earlier = json.loads(summary.read_text(encoding="utf-8"))["parts"] if summary.is_file() else {}
    parts = earlier | {outcome.name: asdict(outcome) for outcome in outcomes}
    claims = json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))
    rows = list(claim_rows(claims, out))
    document = {"parts": parts, "claims": rows}
    summary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = out / "README.md"
    text = (page if page.is_file() else RESULTS / "README.md").read_text(encoding="utf-8")
    for name, lines in (("claims", claim_lines(rows)), ("parts", part_lines(parts.values()))):
        text = _between(text, name, "\n".join(lines))
    page.write_text(text, encoding="utf-8")


def claim_lines(rows: Iterable[Mapping[str, str]]) -> Iterable[str]:
    yield "| page | it says | found in the raw output | command | raw output | date, machine |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        raw = f"[{Path(row['raw']).name}]({row['raw']})" if "raw" in row else row["kind"]
        found = "; ".join(filter(None, [row.get("found", ""), row["note"]]))
        link = f"[{row['page']}](../../{row['page']})"
        when = f"{row['date']}, {row['machine']}"
        cells = (link, row["quote"], found, f"`{row['command']}`", raw, when)
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def part_lines(parts: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    yield "| part | result | seconds |"
    yield "|---|---|---|"
    total = 0.0
    for part in parts:
        total += part["seconds"]
        reason = f": {part['reason']}" if part["reason"] else ""
        yield f"| {part['name']} | {_cell(part['state'] + reason)} | {part['seconds']:.0f} |"
    yield f"| all | | {total:.0f} |"


def _between(text: str, name: str, inner: str) -> str:
    """``text`` with ``inner`` between the marks ``<!-- name -->`` and ``<!-- end -->``."""
    start, found, rest = text.partition(f"<!-- {name} -->\n")
    _, end, rest = rest.partition("<!-- end -->")
    if not found or not end:
        raise ValueError(f"no marks <!-- {name} --> and <!-- end --> in the results' README.md")
    return f"{start}{found}{inner}\n{end}{rest}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _said(*command: str) -> str:
    """What a command printed; empty where it cannot run (no git, no repository)."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
