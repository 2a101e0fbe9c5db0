"""The examples for GPUs: each is checked as ``--dry-run`` does, without a hub and without weights."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
yaml = pytest.importorskip("yaml")

from accelerate.commands.config.config_args import load_config_from_file

from tests.conftest import ROOT
from trainers.trl_adapter import budget
from trainers.trl_adapter.command import main
from trainers.trl_adapter.config import load_config
from trainers.trl_adapter.models import check_environment
from trainers.trl_adapter.presets import PRESETS, resolve
from trainers.trl_adapter.run import check

FOLDER = ROOT / "examples"
FILES = sorted(path for name in PRESETS for path in (FOLDER / name).glob("*.yaml"))
LAUNCHERS = sorted((FOLDER / "accelerate").glob("*.yaml"))


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a dry run reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def _once_per_environment():
    """Making an environment takes a second; the examples differ in the model and the algorithm."""
    made = set()

    def check_once(config, longest):
        key = repr((config.env, config.agent, longest))
        if key not in made:
            check_environment(config, longest)
            made.add(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.trl_adapter.run.check_environment", check_once)
        yield


@pytest.mark.usefixtures("_once_per_environment")
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_example_passes_a_dry_run(path: Path):
    config = check(load_config(path), offline=True)
    shape = budget.model_shape(config)
    assert shape.kind.endswith(("ForCausalLM", "ForConditionalGeneration"))
    assert (shape.vision > 0) == (config.env.options.get("obs_mode") == "image")
    text = budget.report(config)
    assert f"{shape.parameters:,} parameters" in text
    for word in ("optimizer", "critic", "generation", "8 x 80-GB GPU, zero3"):
        assert word in text
    fewest = budget.fewest_gpus(config, shape, "zero3") or budget.fewest_gpus(
        config, shape, "zero2"
    )
    assert fewest is not None, "no number of GPUs fits this example"
    assert fewest <= 8
    assert config.rollout.groups % 8 == 0, "8 processes share the groups"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_example_is_in_its_algorithms_folder_with_a_script_of_one_line(path: Path):
    config = load_config(path)
    assert config.algorithm == path.parent.name
    script = path.with_suffix(".sh").read_text(encoding="utf-8").splitlines()
    assert len(script) == 1  # so a failed training's exit code is the script's
    assert script[0].endswith(f'{path.name}" "$@"')
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 8  # the rest is in the base


def test_no_two_examples_write_into_one_folder():
    folders = [load_config(path).run.output_dir for path in FILES]
    assert len(set(folders)) == len(FILES)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_every_algorithm_has_the_seeds_settings_for_alfworld(algorithm: str):
    config = resolve(load_config(FOLDER / algorithm / "alfworld.yaml"))
    rollout, loss = config.rollout, config.loss
    assert rollout.groups * rollout.group_size == 128
    assert (rollout.groups, rollout.group_size) == ((128, 1) if algorithm == "ppo" else (16, 8))
    assert config.env.options == {"max_steps": 50}
    assert (config.agent.max_prompt_tokens, rollout.max_completion_tokens) == (2048, 512)
    assert (config.optim.learning_rate, config.optim.max_grad_norm) == (1e-6, 1.0)
    assert (loss.kl_coef, loss.entropy_coef, config.advantage.invalid_penalty) == (0.01, 0.001, 0.1)
    clips = {"dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}
    assert (loss.clip_low, loss.clip_high) == clips.get(algorithm, (0.2, 0.2))
    assert rollout.dynamic == (algorithm == "dapo")
    assert config.advantage.gamma == (0.95 if algorithm == "gigpo" else 1.0)
    assert config.optim.mini_batches == 128 * 20 // 256
    assert config.eval.temperature == 0.4


def test_the_games_with_pictures_and_the_lora_runs():
    for name in ("sokoban", "number_line", "ez_points", "points24", "blackjack"):
        config = load_config(FOLDER / "gigpo" / f"{name}.yaml")
        assert config.env.options["obs_mode"] == "image"
        assert "VL" in config.model.path
    for path in FILES:
        config = load_config(path)
        assert ("lora" in path.stem) == (config.lora.rank > 0), name_of(path)
        assert ("7b" in path.stem) == ("7B" in config.model.path), name_of(path)
        if config.lora.rank:
            assert config.optim.learning_rate == 3e-6
            assert budget.needed(config, budget.model_shape(config), budget.gpus()).reference == 0


def test_the_command_prints_the_estimate(capsys):
    assert main(["--config", str(FOLDER / "gigpo" / "alfworld_lora.yaml"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Qwen2ForCausalLM" in said
    assert "trained (LoRA)" in said
    assert "80-GB GPUs that it takes: ddp 1" in said


@pytest.mark.parametrize("path", LAUNCHERS, ids=lambda p: p.stem)
def test_accelerate_reads_the_launchers(path: Path):
    kinds = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero2": "DEEPSPEED", "zero3": "DEEPSPEED"}
    config = load_config_from_file(str(path))
    assert config.distributed_type == kinds[path.stem]
    assert config.num_processes == 8
    assert config.mixed_precision == "bf16"
    if path.stem == "fsdp2":
        assert config.fsdp_config["fsdp_version"] == 2
    if path.stem.startswith("zero"):
        assert config.deepspeed_config["zero_stage"] == int(path.stem[-1])


def test_all_four_launchers_are_there():
    assert [path.stem for path in LAUNCHERS] == ["ddp", "fsdp2", "zero2", "zero3"]
