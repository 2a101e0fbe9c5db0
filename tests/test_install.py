"""The table of installations is about every extra, and says no when it must. Installing itself: docs/installs.md."""

from __future__ import annotations

import pytest

from tests.install import extras
from tests.install.smoke import EXTRAS


def test_every_extra_has_a_use():
    assert set(EXTRAS) == set(extras.extras())
    assert {*extras.NEED_TORCH, *extras.OWN_VERSIONS, *extras.LAST_PYTHON} <= set(EXTRAS)


def test_no_torch_can_come_where_none_is_wanted():
    assert "torch<0" in extras._constraints(set(), torch=False).splitlines()
    lines = extras._constraints({"gymnasium"}, torch=True).splitlines()
    assert extras.TORCH in lines
    assert not any(line.startswith(("gymnasium", "torch<0")) for line in lines)


def test_a_cuda_build_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "_run", lambda command, cwd=None: "13.0\n")
    with pytest.raises(extras.Failed, match=r"CUDA build of torch \(13.0\)"):
        extras._check_torch(tmp_path)


@pytest.mark.parametrize(("packages", "state"), [(15, "ok"), (16, "failed")])
def test_a_core_of_too_many_packages_fails(packages, state, monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "_install", lambda *_: None)
    monkeypatch.setattr(extras, "_contents", lambda _: (packages, 1.0))
    monkeypatch.setattr(extras, "_run", lambda command, cwd=None: "played\n")
    row = extras._one("core", (3, 11, 7), "python", tmp_path, tmp_path)
    assert (row.state, row.packages) == (state, packages)


@pytest.mark.parametrize(("extra", "version"), [("train", (3, 12, 1)), ("gem", (3, 13, 0))])
def test_what_cannot_be_installed_is_skipped_with_a_reason(extra, version, tmp_path):
    row = extras._one(extra, version, "no such python", tmp_path, tmp_path)
    assert row.state == "skipped"
    assert row.note


def test_a_failure_is_a_row_and_an_exit_code(monkeypatch, tmp_path, capsys):
    def broken(extra, *_):
        if extra == "ray":
            raise extras.Failed("no such version")

    monkeypatch.setattr(extras, "_wheel", lambda *_: tmp_path)
    monkeypatch.setattr(extras, "_install", broken)
    monkeypatch.setattr(extras, "_contents", lambda _: (1, 1.0))
    monkeypatch.setattr(extras, "_python", lambda _: (3, 11, 7))
    monkeypatch.setattr(extras, "_run", lambda command, cwd=None: "played\n")
    assert extras.main(["ray", "server", "--json", str(tmp_path / "rows.json")]) == 1
    said = capsys.readouterr().out
    assert "failed: no such version" in said
    assert "ok: played" in said
    assert '"extra": "server"' in (tmp_path / "rows.json").read_text()
