"""The wheel and the sdist hold what they should, and the checker sees when they do not. No network is used."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.install.contents import PACKAGES, check, read, table

BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module", autouse=True)
def _tools():
    """Setuptools of 70.1 and later builds wheels by itself; the extra dev brings one."""
    setuptools = pytest.importorskip("setuptools", reason="needs the extra dev")
    if int(setuptools.__version__.split(".")[0]) < 71:
        pytest.skip(f"setuptools {setuptools.__version__} is too old: pip install '.[dev]'")
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("needs git and a checkout, to know which files are ours")


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of what git tracks of the packages and what builds them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *PACKAGES, "*.md", "*.cfg", "*.toml", "*.in", "*.cff", "*.txt",
         "LICENSE", "NOTICE"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


def build(tree: Path, kind: str) -> Path:
    """The archive; anything that setuptools calls deprecated is an error."""
    out = tree.parent / f"{tree.name} {kind}"
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(out)],
        cwd=tree, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Deprecat" not in done.stderr, done.stderr
    return next(out.iterdir())


def test_wheel_and_sdist_hold_what_they_should(tree):
    sdist, wheel = build(tree, "sdist"), build(tree, "wheel")
    assert check(wheel, ROOT) == []
    assert check(sdist, ROOT) == []
    with tarfile.open(sdist) as packed:
        packed.extractall(tree.parent / "again", filter="data")
    again = build(next((tree.parent / "again").iterdir()), "wheel")
    assert read(again).keys() == read(wheel).keys()


def test_whatever_is_too_much_or_too_little_is_found(tree):
    data, notice = tree / "agent_envs" / "envs" / "sokoban", tree / "NOTICE"
    (data / "rooms.json").write_text("{}")
    (data / "scratch.py").write_text("")
    (tree / "trainers" / "py.typed").write_text("")
    (tree / "agent_envs_tests").mkdir()
    (tree / "agent_envs_tests" / "__init__.py").write_text("")
    (tree / "agent_envs" / "envs" / "webshop" / "words.json").unlink()
    notice.write_text(notice.read_text() + "    agent_envs/ghost.json   nobody's\n")
    found = check(build(tree, "wheel"), ROOT)
    assert {line.split(":")[0] for line in found} == {
        "agent_envs/envs/sokoban/rooms.json is not in NOTICE",
        "agent_envs/envs/sokoban/rooms.json is not tracked by git",
        "agent_envs/envs/sokoban/scratch.py is not tracked by git",
        "agent_envs/envs/webshop/words.json is absent",
        "agent_envs/envs/webshop/words.json was left out",
        "trainers/py.typed is not tracked by git",
        "agent_envs_tests/__init__.py is outside our packages (agent_envs, agent_envs_server, trainers)",
        "NOTICE names agent_envs/ghost.json, which is not there",
        "NOTICE names agent_envs/envs/webshop/words.json, which is not there",
    }


def test_a_changed_or_unlisted_file_is_found(tree, tmp_path):
    import zipfile

    wheel = build(tree, "wheel")
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"{}" if name.endswith("tables.json") else old.read(name))
        new.writestr("agent_envs/core/fast.so", b"")
    assert check(changed) == [
        "agent_envs/core/fast.so is not in RECORD",
        "agent_envs/envs/alfworld/tables.json is not what RECORD says",
        "agent_envs/core/fast.so is not in NOTICE: add a line to its table, or keep it out of the package",
    ]


def test_notices_table_says_where_each_file_comes_from():
    covered = table((ROOT / "NOTICE").read_text(encoding="utf-8"))
    assert covered
    assert all(len(origin) > 5 for origin in covered.values())
