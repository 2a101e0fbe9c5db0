"""`accelerate launch` with two processes on CPUs: the command as a user starts it, in DDP and in FSDP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
yaml = pytest.importorskip("yaml", reason="needs the train extra")
torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM

from agent_envs.core import OptionError
from tests.conftest import ROOT
from tests.test_trl_processes import free_port
from tests.training import gradient, make_trainer, tiny_folder, toy_config, weights
from trainers.trl_adapter import seam

SECONDS = 150
CONFIG = {
    "algorithm": "gigpo",
    "env": {"id": "AgentEnv/NumberLine-v0", "options": {"max_position": 4}},
    "agent": {
        "prompt": {"first": "{observation}"},
        "memory": {"name": "none"},
        "parser": {"name": "tags", "reason": "", "untagged": "action"},
    },
    "model": {"hidden_size": 32, "layers": 2, "context": 64},
    "warm_start": {"episodes": 30, "learning_rate": 3e-3, "random": 0.7},
    "rollout": {"groups": 4, "group_size": 4, "max_completion_tokens": 8, "dynamic": True},
    "optim": {"learning_rate": 1e-3, "mini_batches": 2, "micro_batch_tokens": 512},
    "eval": {"every": 2, "episodes": 6},
    "run": {"updates": 2, "save_every": 1, "log_to": [], "trajectories": 0, "progress": False},
}


def launch(
    out: Path, options: list[str], module: str, cpu: bool = True
) -> subprocess.CompletedProcess:
    """``accelerate launch`` to its end."""
    config = out / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "FSDP_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    env["OMP_NUM_THREADS"] = "1"
    if cpu:
        env["ACCELERATE_USE_CPU"] = "true"
    command = [
        sys.executable, "-m", "accelerate.commands.launch", *options,
        "--main_process_port", str(free_port()), "-m", module,
        "--config", str(config), "--output_dir", str(out / "run"),
    ]  # fmt: skip
    # a session of its own, so that nothing of it outlives a hang
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=env, cwd=out, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(
                process.pid, signal.SIGTERM
            )  # the launcher ends its workers, if need be by force
            process.communicate(timeout=60)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def check_run(out: Path) -> None:
    """A whole run's folder, written once; the weights were trained."""
    run = out / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if "loss" in row]
    assert [row["update"] for row in updates] == [1, 2]
    assert [row["update"] for row in rows if "eval_success_rate" in row] == [0, 2]
    # of 16 episodes, in one round or more; both processes' samples, which seldom are equally many
    assert all(row["samples"] > 16 for row in updates)
    assert any(row["grad_norm"] > 0 for row in updates)
    names = sorted(path.name for path in run.iterdir() if path.is_dir())
    assert names == ["checkpoint-2", "checkpoint-4", "final", "tiny", "warm"]
    assert not list(run.glob(".*"))
    for rank in range(2):
        assert (run / "checkpoint-4" / f"rng_state_{rank}.pth").is_file()
    models = [
        AutoModelForCausalLM.from_pretrained(run / name) for name in ("tiny", "warm", "final")
    ]
    tiny, warm, final = map(weights, models)
    assert torch.isfinite(final).all()
    assert not torch.equal(tiny, warm)
    assert not torch.equal(warm, final)


def test_ddp(tmp_path):
    done = launch(tmp_path, ["--multi_gpu", "--num_processes", "2"], "trainers.trl_adapter")
    assert done.returncode == 0, done.stderr[-3000:]
    check_run(tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-4")
    final = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "final")
    assert torch.equal(weights(saved), weights(final))


def test_fsdp2(tmp_path):
    """With the example's settings: weights are divided, so each forward pass needs both processes."""
    settings = yaml.safe_load((ROOT / "examples/accelerate/fsdp2.yaml").read_text())
    settings |= {"num_processes": 2, "mixed_precision": "no"}
    (tmp_path / "fsdp2.yaml").write_text(yaml.safe_dump(settings))
    done = launch(tmp_path, ["--config_file", str(tmp_path / "fsdp2.yaml")], "tests.fsdp_cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    check_run(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="accelerate finds the GPU")
def test_cpus_that_accelerate_does_not_see(tmp_path):
    """Two processes that each take themselves for the only one would write one folder."""
    options = ["--multi_gpu", "--num_processes", "2"]
    done = launch(tmp_path, options, "trainers.trl_adapter", cpu=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said
    assert said[0].startswith("error: 2 processes were started, but accelerate sees 1")
    assert "set ACCELERATE_USE_CPU=true" in said[0]
    assert not (tmp_path / "run").exists()


def test_one_process_is_not_refused(monkeypatch):
    assert seam.world_size() == 1
    monkeypatch.setenv("WORLD_SIZE", "2")  # some clusters set it, launcher or not
    assert seam.world_size() == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(OptionError, match="2 processes were started"):
        seam.world_size()


def test_one_step_of_the_optimizer_per_mini_batch(tmp_path):
    """DeepSpeed steps inside ``backward`` where gradients are to be synchronised: at the last one only."""
    trainer = make_trainer(
        tiny_folder(tmp_path), toy_config({"optim.micro_batch_tokens": 60}), tmp_path / "out"
    )
    accelerator, synchronised = trainer.accelerator, []
    backward = accelerator.backward

    def recorded(loss, **options):
        synchronised.append(accelerator.sync_gradients)
        backward(loss, **options)

    accelerator.backward = recorded
    gradient(trainer)
    trainer.close()
    assert len(synchronised) > 2
    assert synchronised == [*[False] * (len(synchronised) - 1), True]
    assert accelerator.sync_gradients
