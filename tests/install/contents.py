"""What a built wheel or sdist holds, against what it should: only the standard library is needed.

    python tests/install/contents.py WHEEL|SDIST... [--source CHECKOUT]

Each complaint is a line; the exit code is 1 where there is one. With ``--source`` the modules are compared with what git
tracks there as well.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

PACKAGES = ("agent_envs", "agent_envs_server", "trainers")
WANTED = (
    "agent_envs/py.typed",
    "agent_envs_server/py.typed",
    "agent_envs_server/static/index.html",
    "agent_envs/envs/alfworld/tables.json",
    "agent_envs/envs/webshop/words.json",
    "trainers/trl_adapter/known_models.json",
)
DIST_INFO = {
    "METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE", "licenses/NOTICE",
}  # fmt: skip
# besides the packages
SDIST = {
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "NOTICE", "PKG-INFO", "README.md",
    "SECURITY.md", "constraints.txt", "pyproject.toml", "setup.cfg",
}  # fmt: skip
NEEDED = {"LICENSE", "NOTICE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
_OF_OURS = re.compile(rf"\b(?:{'|'.join(PACKAGES)})/[\w./*-]*[\w/*]")


def check(archive: Path, source: Path | None = None) -> list[str]:
    """What is wrong with a wheel or an sdist; empty where nothing is."""
    files = read(archive)
    told = _wheel(files) if archive.suffix == ".whl" else _sdist(files)
    return [*told, *(_against(files, source) if source else ())]


def read(archive: Path) -> dict[str, bytes]:
    """Every file's bytes by its path; those of an sdist without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            return {name: packed.read(name) for name in packed.namelist() if name[-1] != "/"}
    with tarfile.open(archive) as packed:
        members = [one for one in packed.getmembers() if not one.isdir()]
        return {one.name.partition("/")[2]: packed.extractfile(one).read() for one in members}  # type: ignore[union-attr]


def _wheel(files: dict[str, bytes]) -> Iterator[str]:
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    inside = {name for name in files if name.startswith(f"{info}/")}
    yield from (
        f"{info}/{name} is absent" for name in sorted(DIST_INFO) if f"{info}/{name}" not in files
    )
    yield from (
        f"{name} belongs in no wheel"
        for name in sorted(inside)
        if name.partition("/")[2] not in DIST_INFO
    )
    yield from _record(files, info)
    yield from _packages(
        {name for name in files if name not in inside},
        files.get(f"{info}/licenses/NOTICE", b"").decode(),
    )


def _sdist(files: dict[str, bytes]) -> Iterator[str]:
    yield from (f"{name} is absent" for name in sorted(NEEDED - files.keys()))
    own = {name for name in files if "/" in name and not name.startswith("agent_envs.egg-info/")}
    top = {name for name in files if "/" not in name}
    yield from (f"{name} belongs in no sdist" for name in sorted(top - SDIST))
    yield from _packages(own, files.get("NOTICE", b"").decode())


def _packages(names: set[str], notice: str) -> Iterator[str]:
    """Modules in whole packages, and data that NOTICE accounts for; nothing else."""
    yield from (f"{name} is absent" for name in WANTED if name not in names)
    covered = table(notice)
    for name in sorted(names):
        parents = [str(one) for one in PurePosixPath(name).parents][:-1]
        if name.split("/")[0] not in PACKAGES:
            yield f"{name} is outside our packages ({', '.join(PACKAGES)})"
        elif name.endswith(".py"):
            if missing := [one for one in parents if f"{one}/__init__.py" not in names]:
                yield f"{name} is in no package: {missing[0]} has no __init__.py"
        elif PurePosixPath(name).name != "py.typed" and not any(
            fnmatchcase(name, one) for one in covered
        ):
            yield f"{name} is not in NOTICE: add a line to its table, or keep it out of the package"
    for named in sorted({*covered, *_OF_OURS.findall(notice)}):
        pattern = f"{named}*" if named.endswith("/") else named
        if not any(fnmatchcase(name, pattern) for name in names):
            yield f"NOTICE names {named}, which is not there"


def table(notice: str) -> dict[str, str]:
    """NOTICE's table: a pattern of paths, and where they come from."""
    return dict(re.findall(r"^ {4}(\S+) {2,}(\S.*)$", notice, re.MULTILINE))


def _record(files: dict[str, bytes], info: str) -> Iterator[str]:
    """RECORD against the files."""
    listed = list(csv.reader(files.get(f"{info}/RECORD", b"").decode().splitlines()))
    yield from (
        f"{name} is not in RECORD" for name in sorted(files.keys() - {row[0] for row in listed})
    )
    for name, digest, _ in listed:
        if name not in files:
            yield f"RECORD names {name}, which is not there"
        elif digest:
            kind, _, value = digest.partition("=")
            found = base64.urlsafe_b64encode(hashlib.new(kind, files[name]).digest()).rstrip(b"=")
            if found.decode() != value:
                yield f"{name} is not what RECORD says"


def _against(files: dict[str, bytes], source: Path) -> Iterator[str]:
    """The packages' files against those that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *PACKAGES], cwd=source, capture_output=True, check=True
    ).stdout.decode()
    tracked = set(filter(None, listed.split("\0")))
    inside = {name for name in files if name.split("/")[0] in PACKAGES}
    yield from (f"{name} is not tracked by git" for name in sorted(inside - tracked))
    yield from (f"{name} was left out" for name in sorted(tracked - inside))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("archive", nargs="+", type=Path)
    parser.add_argument("--source", type=Path)
    options = parser.parse_args(arguments)
    wrong = [(a, line) for a in options.archive for line in check(a, options.source)]
    for archive, line in wrong:
        print(f"{archive.name}: {line}")
    if not wrong:
        print(f"{len(options.archive)} archives hold what they should")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
