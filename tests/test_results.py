"""Every figure that a page claims has its evidence, or says that it has none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("rich")
from benchmarks import results
from benchmarks.all import PARTS, Outcome, Part, missing, run_part
from benchmarks.results import RESULTS, ROOT

CLAIMS = json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))
ROWS = list(results.claim_rows(CLAIMS, RESULTS))
PAGES = sorted({claim["page"] for claim in CLAIMS})
MEASURED = re.compile(
    r"\bEPYC\b|\d (?:replica )?steps (?:per|a) |steps/s\b|per CPU second|\bp99\b|CPU time|by hand",
    re.I,
)
"""Words that only a page with measured figures has."""


def identity(claim: dict) -> str:
    return f"{claim['page']}: {claim['quote'][:50]}"


@pytest.mark.parametrize("claim", CLAIMS, ids=identity)
def test_the_page_still_says_what_the_table_quotes(claim):
    """A figure that changes on its page without new evidence fails here."""
    assert claim["quote"] in (ROOT / claim["page"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "raw" in c], ids=identity)
def test_the_raw_output_holds_the_figure(claim):
    head, output = results.read_raw(RESULTS / claim["raw"])
    assert output.strip()
    assert head.get("exit code", "0") == "0"
    assert results.measured(claim, output).strip()


@pytest.mark.parametrize("row", ROWS, ids=identity)
def test_each_row_says_command_date_machine_and_kind(row):
    assert all(row[field] for field in ("command", "date", "machine", "kind"))
    assert row["kind"] == "raw output" or re.match(r"by hand|arithmetic|not measured", row["kind"])


@pytest.mark.parametrize("path", sorted((RESULTS / "raw").glob("*")), ids=lambda path: path.name)
def test_each_raw_file_has_a_header_and_an_output(path):
    assert results.read_raw(path)[1].strip()


def pages_with_figures():
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if path.parent != RESULTS and MEASURED.search(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix()


def test_each_page_with_measured_figures_is_in_the_table():
    assert set(pages_with_figures()) <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_each_page_in_the_table_points_to_it(page):
    link = os.path.relpath(ROOT / "docs/results/README.md", (ROOT / page).parent)
    assert f"]({link})" in (ROOT / page).read_text(encoding="utf-8")


def test_the_tables_of_the_readme_are_those_of_the_data(tmp_path):
    """``python -m benchmarks.all --table`` would change nothing."""
    for name in ("README.md", "summary.json"):
        (tmp_path / name).write_text((RESULTS / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "raw").symlink_to(RESULTS / "raw")
    results.write_tables(tmp_path, [])
    for name in ("README.md", "summary.json"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (RESULTS / name).read_text(
            encoding="utf-8"
        ), f"{name} is out of date: python -m benchmarks.all --table"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_of_the_benchmarks_answers_help(part):
    """Of parts whose packages are there; the options that a part uses are options of its command."""
    if missing(Part(part.name, part.full, part.quick, modules=part.modules), {}):
        pytest.skip("needs packages that are not installed")
    if part.module == "pytest":
        files = [word for word in part.full if word.startswith("tests/")]
        assert files
        assert all((ROOT / name).is_file() for name in files)
        return
    command = ["-m", part.module] if part.full[0] == "-m" else part.full[:1]  # an example's file
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", *command, "--help"],
        cwd=ROOT, capture_output=True, text=True, env={**__import__("os").environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    options = {w for w in (*part.full, *part.quick, *(part.takes or ())) if w.startswith("--")}
    assert {w for w in options if "." not in w and w not in shown.stdout} == set()


# -- what benchmarks.all does with parts that go wrong ------------------------------------------------


def part(code: str, **rest) -> Part:
    return Part("made_up", ("-c", code), ("-c", code), **rest)


def test_a_part_leaves_its_output_under_a_header(tmp_path):
    (tmp_path / "raw").mkdir()
    outcome = run_part(part("print('seven  steps')"), True, {}, tmp_path)
    assert outcome.state == "ok"
    head, output = results.read_raw(tmp_path / "raw" / "made_up.txt")
    assert output == "seven  steps\n"
    assert head["command"] == "python -c 'print('\"'\"'seven  steps'\"'\"')'"
    assert head["exit code"] == "0"
    assert (
        results.measured({"page": "p", "quote": "q", "find": r"(\w+)\s+steps"}, output) == "seven"
    )
    with pytest.raises(ValueError, match="no 'eight'"):
        results.measured({"page": "p", "quote": "q", "find": "eight"}, output)


def test_a_part_that_fails_or_hangs_is_a_failure(tmp_path):
    (tmp_path / "raw").mkdir()
    failed = run_part(part("raise SystemExit('no such data')"), False, {}, tmp_path)
    assert (failed.state, failed.reason) == ("failed", "exit code 1: no such data")
    hung = run_part(part("import time; time.sleep(60)", limit=1), False, {}, tmp_path)
    assert (hung.state, hung.reason) == ("failed", "exit code 124: over the time limit")
    assert hung.seconds < 30


def test_a_part_that_lacks_something_is_skipped_with_the_reason(tmp_path):
    assert missing(part("", needs=("shared",)), {}) == "needs --shared"
    reason = missing(part("", python="ray_python", modules=("no_such",)), {})
    assert reason == "not installed: no_such (or give --ray-python)"
    assert missing(part("", modules=("no_such_module",)), {}) == "not installed: no_such_module"
    skipped = run_part(part("", needs=("shared",)), True, {}, tmp_path)
    assert skipped == Outcome("made_up", "skipped", "needs --shared", 0)
