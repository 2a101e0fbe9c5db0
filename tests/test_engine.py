"""A vLLM that cannot be had is refused in one line, before any model is loaded."""

from __future__ import annotations

import importlib
import logging
import sys

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

from agent_envs.core import OptionError
from tests.training import toy_config
from tests.vllm_stub import write_distribution
from trainers.trl_adapter import command, engine, run, seam, trainer
from trainers.trl_adapter.engine import check_engine, supported_versions, vllm_version

COLOCATE = {"use_vllm": True, "vllm_mode": "colocate"}
SERVER = {"use_vllm": True, "vllm_mode": "server"}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts a package ``vllm`` of some version on the path."""

    def put(version: str) -> None:
        monkeypatch.syspath_prepend(str(write_distribution(tmp_path, version)))
        importlib.invalidate_caches()

    return put


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "vllm" else find(name, *rest),
    )


def refused(trl: dict, processes: int = 1) -> str:
    with pytest.raises(OptionError) as error:
        check_engine(trl, processes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_vllm(absent):
    assert vllm_version() is None
    said = refused(COLOCATE)
    assert said.startswith("trl.use_vllm: vLLM is not installed; pip install 'trl[vllm]'")
    assert "leave trl.use_vllm out" in said
    check_engine({}, 1)
    check_engine({"use_vllm": False, "vllm_mode": "nonsense"}, 1)
    check_engine(COLOCATE, 1, installed=False)  # a dry run for another machine


@pytest.mark.parametrize("version", ["0.21.0", "0.32.0", "0.34.0rc1+cu129"])
def test_a_version_that_trl_does_not_work_with(installed, version):
    installed(version)
    said = refused(COLOCATE)
    assert f"vLLM {version} is installed, the installed TRL works with" in said
    assert "0.31.0" in said


@pytest.mark.parametrize("version", ["0.22.0", "0.31.0", "0.31.0+cu129"])
def test_a_version_that_it_works_with(installed, version):
    installed(version)
    assert vllm_version() == version
    check_engine(COLOCATE, 1)


def test_the_range_is_trls_own():
    """The same as the one in the warning of TRL's own check, which comes after the model."""
    import inspect

    from trl.import_utils import is_vllm_available

    text = inspect.getsource(is_vllm_available)
    bounds = {part.version for part in supported_versions()}
    assert len(bounds) == 2
    for bound in bounds:
        assert bound in text


def test_a_server_needs_a_gpu_and_a_client(installed, monkeypatch):
    installed("0.31.0")
    pytest.importorskip("requests")
    monkeypatch.setattr(engine, "pushes_weights", lambda: False)
    assert "NCCL, which needs a CUDA GPU" in refused(SERVER)
    monkeypatch.setattr(engine, "pushes_weights", lambda: True)
    check_engine(SERVER, 2)


def test_numbers_and_names(installed):
    installed("0.31.0")
    assert "valid: colocate, server" in refused({"use_vllm": True, "vllm_mode": "serve"})
    said = refused({**COLOCATE, "vllm_tensor_parallel_size": 2}, processes=3)
    assert "trl.vllm_tensor_parallel_size (2) must divide the number of processes (3)" in said
    check_engine({**COLOCATE, "vllm_tensor_parallel_size": 2}, 4)


def test_no_model_is_touched(absent, monkeypatch, tmp_path):
    def never(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(trainer, "load_causal", never)
    monkeypatch.setattr(run, "starting_model", never)
    config = toy_config({"trl": COLOCATE, "run.output_dir": str(tmp_path / "run")})
    for start in (lambda: run.train(config), lambda: trainer.StepwiseTrainer("missing", config)):
        with pytest.raises(OptionError, match="vLLM is not installed"):
            start()
    assert not (tmp_path / "run").exists()
    run.check(config, offline=True)


def test_one_line_and_exit_code_2(absent, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    code = command.main(
        ["--trl.use_vllm", "true", "--eval.every", "0", "--run.log_to", "[]",
         "--output_dir", str(tmp_path / "run")]
    )  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("error: trl.use_vllm: vLLM is not installed")
    assert said.count("\n") == 1


def test_a_sampler_that_all_processes_share():
    """Which of TRL's ways to sample are collective; one process is never in step with others."""
    from types import SimpleNamespace as Bag

    def asked(processes=2, kind="MULTI_GPU", stage=None, **engine):
        plugin = None if stage is None else Bag(zero_stage=stage)
        accelerator = Bag(
            num_processes=processes, distributed_type=kind, state=Bag(deepspeed_plugin=plugin)
        )
        own = {"use_vllm": False, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 1}
        return seam.samples_together(Bag(accelerator=accelerator, **{**own, **engine}))

    assert not asked()
    assert asked(kind="FSDP")
    assert asked(kind="DEEPSPEED", stage=3)
    assert not asked(kind="DEEPSPEED", stage=2)
    assert not asked(**COLOCATE)
    assert asked(**SERVER)
    assert asked(**{**COLOCATE, "vllm_tensor_parallel_size": 2})
    assert not asked(processes=1, **SERVER)
