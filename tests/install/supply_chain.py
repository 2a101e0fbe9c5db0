"""Read what supply_chain.sh collected, and say what it means: ``python -m tests.install.supply_chain NAME FOLDER``."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.install.extras import ROOT

STRONG = re.compile(r"\b(?:AGPL|GPL|Affero)|(?<!Lesser )General Public", re.IGNORECASE)
WEAK = re.compile(r"\bLGPL|Lesser General|\bMPL\b|Mozilla|\bEPL\b|Eclipse|\bCDDL\b", re.IGNORECASE)


def pinned(locked: str) -> set[str]:
    """Names in a locked file that are for every platform."""
    found = re.findall(r"^(\S+)==\S+ *(;?)", locked, re.MULTILINE)
    return {_same(name) for name, marker in found if not marker}


def unaudited(report: str, names: Iterable[str]) -> list[str]:
    """Which packages the audit did not look up; all of them where there is no report."""
    try:
        found = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return sorted(names)
    answered = {_same(one["name"]) for one in found if "skip_reason" not in one}
    return sorted(set(names) - answered)


def weaknesses(report: str) -> Iterator[str]:
    """One line for each known weakness."""
    try:
        found = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return
    for one in found:
        for weakness in one.get("vulns", ()):
            fixed = ", ".join(weakness.get("fix_versions", ())) or "nothing yet"
            yield f"{one['name']} {one['version']}: {weakness['id']}, mended in {fixed}"


def copyleft(licences: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Packages under the GPL and the like, and those under weak copyleft, each with its licence."""
    strong, weak = [], []
    for one in licences:
        text = one["License"]
        line = f"{one['Name']} ({text})"
        if WEAK.search(text):
            weak.append(line)
        elif STRONG.search(text):
            strong.append(line)
    return strong, weak


def main(name: str, folder: Path) -> int:
    report = (folder / f"{name}.audit.json").read_text()
    components = json.loads((folder / f"{name}.cdx.json").read_text())["components"]
    licences = json.loads((folder / f"{name}.licences.json").read_text())
    print(f"SBOM: {len(components)} components, valid CycloneDX: {folder / f'{name}.cdx.json'}")
    for licence, count in Counter(one["License"] for one in licences).most_common():
        print(f"licence: {count:3} {licence}")
    strong, weak = copyleft(licences)
    unknown = [one["Name"] for one in licences if one["License"] in ("UNKNOWN", "")]
    print(f"copyleft: {', '.join(strong) or 'none'}; weak copyleft: {', '.join(weak) or 'none'}")
    print(f"no licence stated: {', '.join(unknown) or 'none'}")
    names = pinned((ROOT / "requirements" / f"{name}.txt").read_text())
    missing, weak_spots = unaudited(report, names), list(weaknesses(report))
    for line in weak_spots:
        print(f"WEAKNESS: {line}")
    if missing:
        print(f"AUDIT NOT MADE: the service knew nothing of {len(missing)} of {len(names)} packages, so nothing can "
              f"be said of them ({', '.join(missing[:5])}, ...); is it reached from here? "
              f"{folder / f'{name}.audit.log'}")  # fmt: skip
    elif not weak_spots:
        print(f"audit: no known weakness in {len(names)} packages")
    return int(bool(missing or weak_spots or strong))


def _same(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
