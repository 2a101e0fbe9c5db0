"""The documentation's programs run, stand there as they are, and its pages say what the code does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

DOCS = sorted((ROOT / "docs").rglob("*.md"))


def name(path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_embedded_parts_are_current():
    """Examples, environments' docstrings, episodes' beginnings, presets' defaults."""
    pytest.importorskip("yaml", reason="the presets' table needs the extra train")
    from docs.embed import embedded

    for path in DOCS:
        text = path.read_text(encoding="utf-8")
        assert embedded(text) == text, f"{name(path)}; run: python docs/embed.py"


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS], ids=name)
def test_relative_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", 2), ("docs/tutorial.md", 2), ("docs/bring_your_own.md", 2)]
)
def test_a_pages_python_runs(page, count):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) == count
    for block in blocks:
        if "trainers.trl_adapter" in block:
            pytest.importorskip("trl", reason="this program needs the extra train")
        done = subprocess.run(
            [sys.executable, "-c", block],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr


def test_every_environment_and_algorithm_has_its_page():
    from agent_envs.registration import BUILT_IN
    from docs.embed import page_name

    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for env_id in BUILT_IN:
        page = f"environments/{page_name(env_id)}.md"
        assert f"<!-- environment {env_id} -->" in (ROOT / "docs" / page).read_text("utf-8")
        assert page in nav
    for algorithm in ("gigpo", "grpo", "ppo", "dapo", "gspo", "rloo", "reinforce_pp"):
        page = f"algorithms/{algorithm}.md"
        assert f"<!-- defaults {algorithm} -->" in (ROOT / "docs" / page).read_text("utf-8")
        assert page in nav


def test_trajectory_files_keep_to_their_schema(tmp_path):
    import agent_envs
    from agent_envs.agent import AgentGroup, RandomPolicy
    from agent_envs.trajectories import TrajectoryWriter

    group = agent_envs.make_group("AgentEnv/Sokoban-v0", 2, 2, max_steps=4)
    rollout = AgentGroup(group).rollout(RandomPolicy(0), seed=1)
    with TrajectoryWriter(tmp_path / "t.jsonl", group.definition) as writer:
        writer.write(rollout)
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    kinds = _checked("trajectory", map(json.loads, lines))
    assert kinds == {"header", "start", "step"}


def test_the_metrics_schema_refuses_what_is_no_row():
    jsonschema = pytest.importorskip("jsonschema")
    row = {"step": 1, "update": 1, "success_rate": 0.5, "return_mean": 1.0, "samples": 4.0}
    _checked("metrics", [row])
    for broken in ({**row, "success_rate": 2}, {"step": 1, "update": 1}, {**row, "step": -1}):
        with pytest.raises(jsonschema.ValidationError):
            _checked("metrics", [broken])


def _checked(schema: str, rows) -> set:
    jsonschema = pytest.importorskip("jsonschema")
    rules = json.loads((ROOT / "docs" / "schemas" / f"{schema}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(rules)
    validator = jsonschema.Draft202012Validator(rules)
    kinds = set()
    for row in rows:
        validator.validate(row)
        kinds.add(row.get("record"))
    return kinds


def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("material", reason="the site needs the extra docs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "environments" / "alfworld" / "index.html").is_file()
