"""What an audit and a list of licences are taken to mean. The commands themselves need a registry: docs/supply_chain.md."""

from __future__ import annotations

import json

import pytest

from tests.install.supply_chain import copyleft, main, pinned, unaudited, weaknesses

WEAK_SPOT = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": [], "description": ""}


def report(*dependencies: dict) -> str:
    return json.dumps({"dependencies": list(dependencies), "fixes": []})


def fine(name: str, *vulns: dict) -> dict:
    return {"name": name, "version": "1", "vulns": list(vulns)}


def test_what_was_not_looked_up_is_never_called_free_of_weaknesses():
    skipped = {"name": "rich", "skip_reason": "Dependency not found"}
    assert unaudited(report(fine("Typing_Extensions"), skipped), {"typing-extensions", "rich"}) == [
        "rich"
    ]
    assert unaudited(report(fine("rich")), {"rich"}) == []
    for broken in ("", "not json", "[]", "{}", report()):
        assert unaudited(broken, {"rich", "numpy"}) == ["numpy", "rich"]
        assert list(weaknesses(broken)) == []
    assert list(weaknesses(report(fine("a"), fine("b", WEAK_SPOT)))) == [
        "b 1: PYSEC-1, mended in 2"
    ]


def test_names_of_a_locked_file():
    text = "Rich==1 \\\n    --hash=sha256:0\ncolorama==1 ; sys_platform == 'win32' \\\n    --hash=sha256:0\n"
    assert pinned(text) == {"rich"}


@pytest.mark.parametrize(
    ("licence", "strong", "weak"),
    [
        ("MIT License", 0, 0), ("Apache-2.0", 0, 0), ("GPL-3.0-or-later", 1, 0),
        ("GNU General Public License v3 (GPLv3)", 1, 0), ("GNU Affero General Public License v3", 1, 0),
        ("GNU Lesser General Public License v2 (LGPLv2)", 0, 1), ("LGPL-2.1", 0, 1),
        ("Mozilla Public License 2.0 (MPL 2.0)", 0, 1), ("MPL-2.0 AND MIT", 0, 1),
    ],
)  # fmt: skip
def test_copyleft_is_told_from_the_rest(licence, strong, weak):
    found = copyleft([{"Name": "a", "License": licence}])
    assert tuple(map(len, found)) == (strong, weak)


@pytest.mark.parametrize("made", [True, False])
def test_the_exit_code_and_the_words(made, tmp_path, capsys, monkeypatch):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "x.txt").write_text("rich==1 \\\n    --hash=sha256:0\n")
    monkeypatch.setattr("tests.install.supply_chain.ROOT", tmp_path)
    (tmp_path / "x.cdx.json").write_text('{"components": [{}]}')
    (tmp_path / "x.licences.json").write_text('[{"Name": "rich", "License": "MIT"}]')
    (tmp_path / "x.audit.json").write_text(report(fine("rich")) if made else "")
    assert main("x", tmp_path) == (0 if made else 1)
    said = capsys.readouterr().out
    assert ("no known weakness in 1 packages" in said) == made
    assert ("AUDIT NOT MADE" in said) == (not made)
