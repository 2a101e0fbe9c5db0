"""requirements/*.txt agree with constraints.txt and setup.cfg, and every version has hashes."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.conftest import ROOT

packaging = pytest.importorskip("packaging", reason="needs the extra dev")
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILES = {"rollout.txt": (), "train.txt": ("train",)}
APART = {"torch"}  # installed by itself: see docs/installs.md
AGAIN = "run requirements/lock.sh"


def locked(text: str) -> dict[str, tuple[str, Marker | None, list[str]]]:
    """Version, marker and hashes by name; a line of any other form is an error."""
    found = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if entry.strip() and not entry.startswith("#"):
            match = re.fullmatch(
                r"(\S+)==(\S+)(?: ; ([^-]*?))?((?:\s+--hash=sha256:[0-9a-f]{64})*)\s*", entry
            )
            assert match, entry
            marker = Marker(match[3]) if match[3] else None
            found[canonicalize_name(match[1])] = match[2], marker, match[4].split()
    return found


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"]]
    texts += [config["options.extras_require"][extra] for extra in extras]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def complaints(text: str, pinned: dict[str, str], requirements: list[Requirement]) -> list[str]:
    found = locked(text)
    told = [f"{name} has no hash" for name, (_, _, hashes) in found.items() if not hashes]
    for name, (version, marker, _) in found.items():
        if name not in pinned:
            # what Linux and macOS never install needs no pin
            platforms = ({"sys_platform": one} for one in ("linux", "darwin"))
            if marker is None or any(marker.evaluate(one) for one in platforms):
                told.append(f"{name} is not in constraints.txt")
        elif version != pinned[name]:
            told.append(f"{name} is {version}, in constraints.txt {pinned[name]}")
    for requirement in requirements:
        name = canonicalize_name(requirement.name)
        if name in APART:
            continue
        if name not in found:
            told.append(f"{name} is missing")
        elif not requirement.specifier.contains(found[name][0]):
            told.append(f"{name} {found[name][0]} is outside {requirement.specifier}")
    return told


@pytest.fixture(scope="module")
def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("name", FILES)
def test_locked_files_agree_with_constraints_and_setup(name, pinned):
    text = (ROOT / "requirements" / name).read_text()
    assert complaints(text, pinned, wanted(FILES[name])) == [], AGAIN
    assert "setuptools" in locked(text), "builds our own wheel"
    assert not re.search(r"^(torch|triton|nvidia|cuda)", text, re.MULTILINE)


def test_rollouts_versions_are_trains():
    small, large = (locked((ROOT / "requirements" / name).read_text()) for name in FILES)
    assert {name: small[name] for name in small} == {name: large.get(name) for name in small}


def test_every_kind_of_disagreement_is_seen(pinned):
    text = (ROOT / "requirements" / "rollout.txt").read_text()
    requirements = wanted(())
    version = pinned["numpy"]
    assert complaints(text.replace(f"numpy=={version}", "numpy==1.0"), pinned, requirements) == [
        f"numpy is 1.0, in constraints.txt {version}",
        "numpy 1.0 is outside >=1.26",
    ]
    assert complaints(text + "unheard-of==1\n", pinned, requirements) == [
        "unheard-of has no hash",
        "unheard-of is not in constraints.txt",
    ]
    without = re.sub(r"(?m)^rich==.*\n( .*\n?)*", "", text)
    assert complaints(without, pinned, requirements) == ["rich is missing"]
