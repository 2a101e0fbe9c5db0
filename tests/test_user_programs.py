"""The twelve short programs of docs/user_programs.md, as a user would run them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAMS = sorted((ROOT / "examples").glob("[0-9]*.py"))
SAYS = {
    "01_random_play": "steps, solved:",
    "02_groups": "[1 1 1 1 1 0 1 1]",
    "03_custom_policy": "Admissible actions",
    "04_own_env": "8 of 8 replicas won",
    "05_own_memory": "uneventful steps not shown",
    "06_own_parser": "go to",
    "07_panel": "140 tasks, 100.0% solved",
    "08_tree_search": "trajectory 4 from 0, step 3",
    "09_columns": "group 3: returns",
    "10_partial_steps": "6 of 6 replicas solved",
    "11_process_backend": "equal in process and inline",
    "12_images_in_prompts": "[(168, 168), (168, 168)]",
}


def test_there_are_twelve_and_the_environment_is_short():
    assert [p.stem for p in PROGRAMS] == sorted(SAYS)
    lines = (ROOT / "examples" / "04_own_env.py").read_text().splitlines()
    assert len(lines) <= 60


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_program(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert SAYS[path.stem] in done.stdout
