"""Two processes train together: gradients and weights are those of one, whatever each of them plays."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

from agent_envs.core import OptionError
from tests.training import (
    Scripted,
    make_trainer,
    relative,
    tiny_folder,
    toy_config,
    weights,
)
from trainers.trl_adapter import run
from trainers.trl_adapter.callbacks import StopAtBoundary
from trainers.trl_adapter.checkpoint import checkpoints
from trainers.trl_adapter.collect import Collector
from trainers.trl_adapter.microbatch import SCALES
from trainers.trl_adapter.trainer import StepwiseTrainer

WORLD, SECONDS = 2, 240
LONGEST = {"rollout.max_completion_tokens": 6}
CASES = {
    **{
        loss_type: {"loss.loss_type": loss_type, "loss.entropy_coef": 0.3}
        for loss_type in sorted(SCALES)
    },
    "gspo": {"algorithm": "gspo"},
    "ppo": {"algorithm": "ppo"},
    "ppo-episode": {"algorithm": "ppo", "advantage.chain": "episode", "advantage.lam": 0.9},
    "reinforce_pp": {"algorithm": "reinforce_pp", "advantage.kl_in_reward": 0.1},
    "kl": {"algorithm": "rloo", "loss.kl_coef": 0.1},
    "dynamic": {"algorithm": "dapo", "rollout.max_rounds": 3},
    "one-process-without-samples": {"loss.entropy_coef": 0.3},
}
FIGURES = (
    "success_rate", "return_mean", "episode_steps", "invalid_format_rate", "groups_kept", "rounds",
    "samples", "failed_episodes", "masked_samples", "tokens_generated", "critic/loss",
    "critic/grad_norm", "wild_tokens", "skipped_updates",
)  # fmt: skip
RUNS = {
    "gigpo": {"optim.mini_batches": 2, "optim.iterations": 2, "eval.every": 1},
    "ppo": {"algorithm": "ppo", "critic.learning_rate": 1e-2, "optim.mini_batches": 2},
    "warm": {"warm_start.episodes": 6, "warm_start.epochs": 2, "run.updates": 1,
             "rollout.max_completion_tokens": 5},
    "stopped": {"run.updates": 9, "optim.mini_batches": 2},
}  # fmt: skip


def play(monkeypatch, trainer, dynamic: bool) -> Scripted:
    """The first group's episodes are short, the second's long; replies are of 1 to 6 tokens."""

    def choose(view):
        group = trainer.collector._first + view.group  # among those of all processes
        if group == 0:
            return "win" if view.member < 3 and view.step == view.member % 2 else "wait"
        if view.member == 0 and view.step == 2 and not dynamic:
            return "win"
        junk = (view.member + view.step) % 3
        return "wait" if junk == 0 or dynamic else "?!x-,"[: 2 * junk + 1]

    return Scripted(monkeypatch, trainer, choose)


def gradients(folder: Path, out: Path, bad_task: str, tokens: int) -> dict[str, dict]:
    """Per case: the gradient of one training step, and figures."""
    found = {}
    for name, overrides in CASES.items():
        config = {**LONGEST, **overrides, "optim.micro_batch_tokens": tokens}
        if name == "one-process-without-samples":
            config["env.options.bad_tasks"] = [bad_task]
        trainer = make_trainer(folder, toy_config(config), out / name)
        model = trainer.accelerator.prepare_model(trainer.model)
        with pytest.MonkeyPatch.context() as patch:
            scripted = play(patch, trainer, name == "dynamic")
            trainer.training_step(model, [{"prompt": ""}])
        trainer.close()
        figures = trainer._metrics["train"]
        found[name] = {
            "gradient": torch.cat([p.grad.flatten() for p in trainer.model.parameters()]),
            "figures": {figure: figures[figure] for figure in FIGURES if figure in figures},
            "rows": len(trainer._buffered_inputs[0]["prompt_ids"]),
            "samples": len(trainer.last_rollout.steps),
            "tasks": {trainer.collector._first + v.group: v.task for v in scripted.views},
            "critic": None if trainer.critic is None else weights(trainer.critic.model),
        }
    return found


def work(rank: int, folder: Path, out: Path, bad_task: str, port: int) -> None:
    """One of the processes."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    found: dict = {"gradients": gradients(folder, out / "one-step", bad_task, tokens=60)}
    with pytest.raises(OptionError) as refused:
        make_trainer(folder, toy_config({"rollout.groups": 3}), out / "refused")
    found["refused"] = str(refused.value)

    found["weights"], close = {}, StepwiseTrainer.close

    def keep(trainer):
        found["weights"][name] = weights(trainer.model)
        if trainer.critic is not None:
            found["weights"][f"{name} critic"] = weights(trainer.critic.model)
        close(trainer)

    collect = Collector.collect

    def interrupted(self, number, *rest):
        if name == "stopped" and rank == 1 and number == 1:  # one process alone is told
            signal.raise_signal(signal.SIGTERM)
        return collect(self, number, *rest)

    StepwiseTrainer.close, Collector.collect = keep, interrupted
    for name, overrides in RUNS.items():
        fixed = {"run.output_dir": str(out / name), "run.save_every": 1}
        found[f"figures of {name}"] = run.train(toy_config({**fixed, **overrides}))
    torch.save(found, out / f"rank-{rank}.pt")
    torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """(folder, what one process finds, what each of two finds)."""
    out = tmp_path_factory.mktemp("processes")
    folder = tiny_folder(out)
    with pytest.MonkeyPatch.context() as patch:
        trainer = make_trainer(folder, toy_config(LONGEST), out / "tasks")
        views = play(patch, trainer, dynamic=False).views
        trainer.collector.collect(0)
        trainer.close()
    tasks = {view.group: view.task.removeprefix("win ") for view in views}
    assert tasks[0] != tasks[1]
    context = torch.multiprocessing.spawn(
        work, args=(folder, out, tasks[1], free_port()), nprocs=WORLD, join=False
    )
    alone = gradients(folder, out / "alone", tasks[1], tokens=10**6)
    end = time.monotonic() + SECONDS
    try:
        while not context.join(timeout=1):
            assert time.monotonic() < end, "the processes hang"
    finally:
        for process in context.processes:
            process.kill()
    return out, alone, [torch.load(out / f"rank-{r}.pt") for r in range(WORLD)]


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_one_process(both, name):
    """F110, F099: unequal numbers of samples and tokens, cut into micro-batches."""
    _, alone, ranks = both
    one, (first, second) = alone[name], [found["gradients"][name] for found in ranks]
    assert first["samples"] != second["samples"]
    assert first["samples"] + second["samples"] == one["samples"]
    assert first["rows"] == second["rows"] == max(first["samples"], second["samples"])
    assert torch.equal(first["gradient"], second["gradient"])
    assert one["gradient"].norm() > 0
    assert relative(first["gradient"], one["gradient"]) < 1e-6
    if name == "one-process-without-samples":
        assert (first["samples"], second["samples"]) == (8, 0)
    for figure, value in one["figures"].items():
        assert first["figures"][figure] == pytest.approx(value, rel=1e-5), figure
    if one["critic"] is not None:
        assert torch.equal(first["critic"], second["critic"])


def test_dynamic_sampling_plays_as_many_rounds_everywhere(both):
    _, _, ranks = both
    for found in ranks:
        assert found["gradients"]["dynamic"]["figures"]["rounds"] == [3.0]
        assert found["gradients"]["dynamic"]["figures"]["groups_kept"] == [0.5]


def test_a_group_is_not_torn_apart(both):
    """F110."""
    _, _, ranks = both
    for found in ranks:
        said = found["refused"]
        assert "rollout.groups (3) must be a multiple of the number of processes (2)" in said


@pytest.mark.parametrize("name", ["gigpo", "ppo", "ppo critic", "warm", "stopped"])
def test_weights_stay_the_same_on_all_processes(both, name):
    _, _, (first, second) = both
    assert torch.isfinite(first["weights"][name]).all()
    assert torch.equal(first["weights"][name], second["weights"][name])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_two_processes_leaves_one_whole_folder(both, name):
    from transformers import AutoModelForCausalLM

    out, _, ranks = both
    folder = out / name
    updates = 2 if name == "stopped" else RUNS[name].get("run.updates", 2)
    steps = toy_config(RUNS[name]).steps_per_rollout
    assert [p.name for p in checkpoints(folder)] == [
        f"checkpoint-{steps * n}" for n in range(1, updates + 1)
    ]
    model = AutoModelForCausalLM.from_pretrained(checkpoints(folder)[-1])
    assert torch.equal(weights(model), ranks[0]["weights"][name])
    rng = sorted(p.name for p in checkpoints(folder)[-1].glob("rng_state*"))
    assert rng == ["rng_state_0.pth", "rng_state_1.pth"]
    assert (checkpoints(folder)[-1] / "critic.pt").is_file() == (name == "ppo")
    assert (folder / "final").is_dir() == (name != "stopped")
    assert (folder / "warm").is_dir() == (name == "warm")
    assert not list(folder.glob(".*"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows if "loss" in row] == list(range(1, updates + 1))
    assert [r[f"figures of {name}"]["update"] for r in ranks] == [updates] * WORLD
    evaluated = [row["step"] for row in rows if "eval_success_rate" in row]
    assert len(evaluated) == (3 if name == "gigpo" else 0)


def test_one_process_that_is_told_to_stop_stops_all_of_them():
    told = []
    stop = StopAtBoundary(2, share=lambda requested: told.append(requested) or True)
    state, control = type("State", (), {"global_step": 1})(), type("Control", (), {})()
    stop.on_step_end(None, state, control)
    assert told == []  # inside a rollout nobody is asked
    state.global_step = 2
    stop.on_step_end(None, state, control)
    assert told == [False]
    assert control.should_save
    assert control.should_training_stop
