"""Whole runs: the command line, run folders, checkpoints, stopping and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
torch = pytest.importorskip("torch")

import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_utils
from transformers import trainer as hf_trainer

import agent_envs
from agent_envs import registration
from agent_envs.agent import TagParser
from agent_envs.core import Profile, PromptSpec
from agent_envs.evaluation import Episode, Evaluation
from agent_envs.trajectories import replay
from tests.conftest import ROOT
from tests.toy import ToyEnv
from tests.training import TIMING, TOY, toy_config
from trainers.trl_adapter import command, run, sft
from trainers.trl_adapter.callbacks import StopAtBoundary
from trainers.trl_adapter.checkpoint import SaveError, checkpoints
from trainers.trl_adapter.collect import Collector
from trainers.trl_adapter.config import leaves, to_dict
from trainers.trl_adapter.models import model_folder
from trainers.trl_adapter.trainer import StepwiseTrainer

SAVING = {"run.save_every": 1, "run.keep": 9}
ALGORITHMS = "gigpo, grpo, dapo, gspo, rloo, reinforce_pp, ppo"


class Silent(ToyEnv):
    """Without an expert."""

    profile = Profile(PromptSpec(first="{observation}", later="{observation}"))


agent_envs.register("Test/Silent-v0", Silent)


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(TOY), encoding="utf-8")
    return path


def train(out: Path, overrides: dict | None = None):
    return run.train(toy_config({"run.output_dir": str(out), **(overrides or {})}))


def metrics(out: Path) -> list[dict]:
    """Rows of the run without what depends on the clock."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMING} for row in rows]


def names(out: Path) -> list[str]:
    return [path.name for path in checkpoints(out)]


def assert_loadable(checkpoint: Path) -> None:
    AutoModelForCausalLM.from_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(checkpoint)
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] > 0
    assert torch.load(checkpoint / "optimizer.pt", weights_only=True)["state"]


def assert_equal_states(one, other, where="") -> None:
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_equal_states(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_states(a, b, f"{where}.{i}")
    else:
        assert torch.equal(one, other) if torch.is_tensor(one) else one == other, where


# -- a whole run --


def test_a_run_leaves_a_folder_that_explains_itself(config_file, tmp_path, capsys):
    out = tmp_path / "out"
    code = command.main(
        ["--config", str(config_file), "--output-dir", str(out), "--algorithm=ppo",
         "--run.updates", "3", "--save_every", "2", "--eval.every", "2", "--eval.episodes=5",
         "--trajectories", "2", "--critic.learning_rate", "1e-3"]
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert (written["algorithm"], written["critic"]["learning_rate"]) == ("ppo", 1e-3)
    assert written["loss"]["loss_type"] == "dapo"  # with the algorithm's numbers filled in
    rows = metrics(out)
    documented = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert {key for row in rows for key in row if f"`{key}`" not in documented} == set()
    updates = [row for row in rows if "success_rate" in row]
    assert [(row["step"], row["update"]) for row in updates] == [(1, 1), (2, 2), (3, 3)]
    assert all(0 <= row["success_rate"] <= 1 and "critic/loss" in row for row in updates)
    evaluations = [row for row in rows if "eval_success_rate" in row]
    assert [row["step"] for row in evaluations] == [0, 2, 3]
    assert [row["eval_episodes"] for row in evaluations] == [5, 5, 5]
    best = json.loads((out / "best.json").read_text())
    assert best["success_rate"] == max(row["eval_success_rate"] for row in evaluations)
    for folder in (out / "final", out / "tiny"):
        AutoModelForCausalLM.from_pretrained(folder)
        AutoTokenizer.from_pretrained(folder)
    assert not torch.equal(*(
        load_file(out / name / "model.safetensors")["model.embed_tokens.weight"]
        for name in ("final", "tiny")
    ))  # fmt: skip
    assert names(out) == ["checkpoint-2", "checkpoint-3"]
    assert_loadable(out / "checkpoint-2")
    assert (out / "checkpoint-2" / "critic.pt").is_file()
    (sample,) = (out / "trajectories").iterdir()
    report = replay(sample)
    assert (report.trajectories, report.difference) == (4, None)
    assert report.steps > 0
    assert not list(out.glob(".*"))


def test_a_dry_run_prints_everything_and_writes_nothing(config_file, tmp_path, capsys):
    out = tmp_path / "out"
    code = command.main(
        ["--config", str(config_file), "--output_dir", str(out), "--dry-run",
         "--optim.learning_rate", "1e-3"]
    )  # fmt: skip
    assert code == 0
    printed = yaml.safe_load(capsys.readouterr().out)  # as a file: stdout alone
    assert printed.keys() == to_dict(toy_config()).keys()
    assert printed["optim"]["learning_rate"] == 1e-3
    assert printed["advantage"]["gamma"] == 0.95
    assert not out.exists()


def test_a_run_whose_episodes_all_fail_ends_with_the_reason(tmp_path, config_file, capsys):
    """F090's kind: it is no success, and it does not go on to its last update."""
    bad = yaml.safe_dump([f"task-{i}" for i in range(10)])
    out = tmp_path / "out"
    given = ["--config", str(config_file), "--output_dir", str(out), "--run.updates", "9"]
    assert command.main([*given, "--env.options.bad_tasks", bad]) == 2
    assert "all episodes of 3 update(s) on end failed" in capsys.readouterr().err
    assert len(metrics(out)) < 9


def test_help_lists_every_field(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for path, _, item in leaves():
        assert f"--{path} " in said
        assert item.metadata["help"] in said


@pytest.mark.parametrize("word", ["--help", "--algoritm=grpo"])
def test_help_and_typos_are_answered_before_torch_is_loaded(word: str):
    code = (
        "import sys\nfrom trainers.trl_adapter.command import main\n"
        f"try:\n    main([{word!r}])\nfinally:\n    print('torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout.splitlines()[-1] == "False", said


# -- what is refused, in one line, before anything is built --

REFUSED = {
    "--algorithm gipo": f"unknown algorithm 'gipo'; nearest: gigpo, gspo; valid: {ALGORITHMS}",
    "--env.id Test/Toi-v0": "Environment `Toi` doesn't exist in namespace Test. Did you mean: `Toy`?",
    "--env.id NumberLine": "Did you mean AgentEnv/NumberLine-v0",
    "--model.attn_implementation sdpaa": "unknown model.attn_implementation 'sdpaa'; valid: sdpa, eager, ",
    "--lora.rank 4 --lora.targets qq_proj": "'qq_proj' matches no linear module of tiny",
    "--env.id CartPole-v1": "CartPole-v1 is no agent environment; valid: AgentEnv/ALFWorld-v0, ",
    "--env.options.max_stepps 3": "max_steps",
    "--env.split nowhere": "valid: train, test",
    "--optim.lerning_rate 1": "nearest: optim.learning_rate",
    "--rollouts.groups 2": "nearest: rollout.groups",
    "--learning_rate 1": "several sections: warm_start.learning_rate, critic.learning_rate, optim.learning_rate",
    "--optim.learning_rate much": "optim.learning_rate: expected float, got 'much'",
    "--rollout.groups 1.5": "rollout.groups: expected int, got 1.5",
    "--rollout.group_size 1": "rollout.group_size must be at least 2, got 1",
    "--trl.nonsense_field 1": "error: trl.nonsense_field: TRL's GRPOConfig has no such field\n",
    "--trl.gradient_checkpoint true": "nearest: gradient_checkpointing",
    "--trl.learning_rate 1": "trl.learning_rate cannot be set here: the adapter sets it; use optim.learning_rate",
    "--trl.auto_find_batch_size true": "auto_find_batch_size is not supported by GRPO",
    "--loss.loss_type dapoo": "unknown loss.loss_type 'dapoo'; valid: grpo, sapo",
    "--optim.schedule warm": "unknown optim.schedule 'warm'; valid: constant, constant_with_warmup, cosine",
    "--loss.overlong_buffer 9": "loss.overlong_buffer (9) must be at most rollout.max_completion_tokens (3)",
    "--agent.max_prompt_tokens 126": "make 129, more than the model's context of 128",
    "--model.hidden_size 30": "valid near it: 24, 32",
    "--model.path nowhere": "'nowhere' is no folder with a Hugging Face model",
    "--agent.prompt {first: '{tusk}'}": "tusk",
    "--agent.prompt {frist: x}": "agent.prompt (valid: first, later, turn, system): ",
    "--agent.prompt {first: 3}": "agent.prompt.first: expected text, got 3",
    "--agent.parser {name: tags, raison: x}": "parser tags: ",
    "--agent.memory {name: window, sise: 3}": "memory window: ",
    "--agent.max_prompt_tokens 0": "agent.max_prompt_tokens must be a positive integer, got 0",
    "--rollout.max_completion_tokens 128": "replies of 128 tokens (rollout.max_completion_tokens) and a prompt of one at least make 129",
    "--env.id nowhere_to_be_found:My/Env-v0": "No module named 'nowhere_to_be_found'",
    "--lora.rank 4 --lora.targets [qq_proj]": "'qq_proj' matches no linear module of tiny; valid: all-linear, down_proj",
    "--optim.learning_rate .nan": "optim.learning_rate: expected float, got nan",
    "--optim.learning_rate -1": "optim.learning_rate: expected a number of at least 0, got -1.0",
    "--warm_start.learning_rate -1": "warm_start.learning_rate: expected a number of at least 0",
    "--critic.value_clip -1": "critic.value_clip: expected a number of at least 0",
    "--rollout.top_p 0": "rollout.top_p: expected a number from 1e-06 to 1, got 0.0",
    "--rollout.top_k -3": "rollout.top_k: expected a number of at least 0, got -3",
    "--rollout.temperature .inf": "rollout.temperature: expected a number from 0.001 to 1000, got inf",
    "--advantage.gamma 1.5": "advantage.gamma: expected a number from 0 to 1, got 1.5",
    "--advantage.lam -1": "advantage.lam: expected a number from 0 to 1, got -1.0",
    "--eval.episodes 0": "eval.episodes must be a positive integer, got 0",
    "--eval.temperature -1": "eval.temperature: expected a number from 0 to 1000, got -1.0",
    "--run.seed -1": "run.seed: expected a number from 0 to ",
    "--run.trajectories -1": "run.trajectories: expected a number of at least 0",
    "--agent.parser.name jsn": "valid: ",
    "--agent.memory.name fool": "valid: ",
    "--eval.every 1 --eval.split tost": "eval.split: unknown split 'tost'; valid: train, test",
    "--run.log_to [tensorbored]": "unknown 'tensorbored'; valid: tensorboard, trackio, wandb",
    "--run.log_to [wandb]": "wandb is not installed: pip install wandb",
    "--config nowhere.yaml": "cannot read the config nowhere.yaml",
    "--resume latest": "nothing to resume",
    "--dry": "--dry needs a value",  # not short for --dry-run
    "groups 2": "expected --field VALUE, got 'groups'",
}  # fmt: skip


def test_a_key_that_stands_twice_is_named_with_its_line(tmp_path, capsys):
    path = tmp_path / "twice.yaml"
    path.write_text("rollout: {groups: 4}\nalgorithm: grpo\nrollout: {group_size: 2}\n")
    assert command.main(["--config", str(path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "'rollout' stands twice" in said
    assert "line 3" in said


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_in_place_of_the_run_folder_is_named(config_file, tmp_path, capsys, inside):
    path = tmp_path / "file"
    path.write_text("x")
    out = path / "run" if inside else path
    assert command.main(["--config", str(config_file), "--output_dir", str(out), "--dry-run"]) == 2
    assert f"run.output_dir {out}: {path} is a file" in capsys.readouterr().err


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_one_line_with_what_is_valid(
    config_file, tmp_path, capsys, monkeypatch, words
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    option, _, value = words.partition(" ")
    given = [option, value] if value.startswith("{") else words.split()
    code = command.main(
        ["--config", str(config_file), "--output_dir", str(tmp_path / "out"), *given]
    )  # fmt: skip
    said = capsys.readouterr().err
    assert code == 2
    assert REFUSED[words] in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_environment_of_a_users_module_is_imported_by_its_id(
    config_file, tmp_path, capsys, monkeypatch
):
    text = "import agent_envs\nfrom tests.toy import ToyEnv\nagent_envs.register('My/Own-v0', ToyEnv)\n"
    (tmp_path / "my_own_module.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    given = [
        "--config",
        str(config_file),
        "--env.id",
        "my_own_module:My/Own-v0",
        "--run.updates",
        "1",
    ]
    try:
        assert command.main([*given, "--output_dir", str(tmp_path / "out")]) == 0
    finally:
        registration._ids.remove("My/Own-v0")  # the conformance tests are about the others
    assert (tmp_path / "out" / "final").is_dir()


class Unlisted(ToyEnv):
    """Names no actions; its expert does."""

    def admissible_actions(self):
        return None


agent_envs.register("Test/Unlisted-v0", Unlisted)


def test_the_tiny_model_learns_its_words_from_the_expert_where_no_actions_are_listed(tmp_path):
    config = toy_config({"env.id": "Test/Unlisted-v0"})
    folder = model_folder(config, tmp_path)
    known = AutoTokenizer.from_pretrained(folder).get_vocab()
    assert "win" in known


def test_without_tensorboard_the_extra_is_named(config_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    arguments = ["--config", str(config_file), "--output_dir", str(tmp_path / "out")]
    assert command.main([*arguments, "--run.log_to", "[tensorboard]"]) == 2
    assert "pip install 'agent-envs[train]'" in capsys.readouterr().err


# -- going on --


@pytest.mark.parametrize(
    "overrides",
    [{"algorithm": "ppo", "critic.learning_rate": 1e-2},
     {"algorithm": "gigpo", "optim.mini_batches": 2, "eval.every": 1, "loss.kl_coef": 0.01}],
    ids=["ppo", "mini-batches"],
)  # fmt: skip
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path, overrides):
    overrides = {**overrides, **SAVING, "optim.max_grad_norm": 1e-2}  # so that Adam's state matters
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, {**overrides, "run.updates": 4})
    train(parts, {**overrides, "run.updates": 2})
    early = load_file(parts / "final" / "model.safetensors")
    train(parts, {**overrides, "run.updates": 4, "run.resume": "latest"})
    steps = overrides.get("optim.mini_batches", 1)
    assert names(parts) == names(whole) == [f"checkpoint-{steps * n}" for n in (1, 2, 3, 4)]
    for name in ("final", f"checkpoint-{4 * steps}"):
        assert_equal_states(
            load_file(parts / name / "model.safetensors"),
            load_file(whole / name / "model.safetensors"),
        )
    late = load_file(parts / "final" / "model.safetensors")
    assert not torch.equal(*(w["model.embed_tokens.weight"] for w in (early, late)))
    files = ["optimizer.pt", *(["critic.pt"] if overrides["algorithm"] == "ppo" else [])]
    for file in files:
        assert_equal_states(*(
            torch.load(out / f"checkpoint-{4 * steps}" / file, weights_only=True)
            for out in (whole, parts)
        ))  # fmt: skip
    assert metrics(parts) == metrics(whole)
    assert [row["update"] for row in metrics(parts) if "loss" in row] == [1, 2, 3, 4]
    if "eval.every" in overrides:
        evaluated = [row["update"] for row in metrics(parts) if "eval_success_rate" in row]
        assert evaluated == [0, 1, 2, 3, 4]
        assert (parts / "best.json").read_text() == (whole / "best.json").read_text()


def test_a_resumed_run_saves_and_evaluates_as_it_is_told_now(tmp_path):
    out = tmp_path / "out"
    train(out, SAVING)
    now = {"run.updates": 6, "run.save_every": 2, "eval.every": 3, "run.resume": "latest"}
    train(out, {**SAVING, **now})
    assert names(out) == [f"checkpoint-{n}" for n in (1, 2, 3, 4, 6)]  # 3: the best so far
    assert [row["update"] for row in metrics(out) if "eval_success_rate" in row] == [3, 6]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two updates of two optimizer steps, with one checkpoint that lies inside a rollout."""
    out = tmp_path_factory.mktemp("finished") / "run"
    train(out, {**SAVING, "optim.mini_batches": 2})
    (out / "checkpoint-2").rename(out / "checkpoint-3")
    return out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [({"run.resume": None}, "holds a run already (checkpoint-4): resume it with --resume latest"),
     ({"optim.learning_rate": 0.5}, "changed: optim.learning_rate (0.01 -> 0.5)"),
     ({"run.seed": 7}, "changed: run.seed (0 -> 7)"),
     ({"run.resume": "checkpoint-3"}, "step 3 lies inside a rollout (of 2 steps)"),
     ({"run.resume": "checkpoint-9"}, "no whole checkpoint; valid here: checkpoint-4"),
     ({"run.resume": "tiny"}, "no whole checkpoint; valid here: checkpoint-4"),
     ({"run.resume": "OTHER/checkpoint-2"}, "no checkpoint of this run")],
)  # fmt: skip
def test_what_cannot_be_resumed_is_refused(
    finished, tmp_path, config_file, capsys, overrides, message
):
    given = {"run.resume": "latest", "optim.mini_batches": 2, "run.updates": 3, **overrides}
    if str(given["run.resume"]).startswith("OTHER"):
        train(tmp_path / "other", {"run.save_every": 1})
        given["run.resume"] = str(tmp_path / "other" / "checkpoint-2")
    words = [word for name, value in given.items() for word in (f"--{name}", yaml.safe_dump(value))]
    before = (finished / "metrics.jsonl").read_text()
    capsys.readouterr()
    code = command.main(["--config", str(config_file), "--output_dir", str(finished), *words])
    said = capsys.readouterr().err
    assert code == 2
    assert message in said
    assert said.count("\n") == 1
    assert (finished / "metrics.jsonl").read_text() == before


def test_resuming_a_finished_run_says_so_and_changes_nothing(finished, config_file, caplog):
    caplog.set_level("INFO", "trainers.trl_adapter")
    before = (finished / "metrics.jsonl").read_text()
    given = ["--config", str(config_file), "--output_dir", str(finished), "--resume=latest"]
    assert command.main([*given, "--run.updates=2", "--optim.mini_batches=2"]) == 0
    assert f"{finished} is at update 2 of 2; --run.updates 4 would go on" in caplog.text
    assert (finished / "metrics.jsonl").read_text() == before


def test_a_new_run_takes_nothing_from_the_one_before_in_its_folder(tmp_path):
    out = tmp_path / "out"
    learned = {f"warm_start.{name}": n for name, n in (("episodes", 4), ("epochs", 1))}
    train(out, {**learned, "model.hidden_size": 16, "eval.every": 1, "run.trajectories": 1,
                "rollout.max_completion_tokens": 5, "run.updates": 1})  # fmt: skip
    assert (out / "best.json").is_file()
    for checkpoint in checkpoints(out):  # an evaluation that was the best one so far
        checkpoint.rename(tmp_path / checkpoint.name)
    train(out, {"run.updates": 1})
    assert json.loads((out / "tiny" / "config.json").read_text())["hidden_size"] == 32
    assert json.loads((out / "final" / "config.json").read_text())["hidden_size"] == 32
    assert not (out / "warm").exists()
    assert not (out / "best.json").exists()
    assert not (out / "trajectories").exists()
    assert [row["step"] for row in metrics(out)] == [1]


def test_a_trainer_in_an_old_folder_does_not_believe_its_best(tmp_path):
    train(tmp_path / "run", {"run.updates": 1})
    (tmp_path / "run" / "best.json").write_text(
        '{"success_rate": 1.0, "step": 5, "checkpoint": "checkpoint-5"}'
    )
    trainer = StepwiseTrainer(
        tmp_path / "run" / "tiny", toy_config(), output_dir=tmp_path / "run"
    )  # fmt: skip
    trainer.close()
    assert trainer.best is None


# -- which checkpoints stay --


def panels(monkeypatch, wins: list[int]) -> None:
    """Evaluations with so many of ten tasks won, one after the other."""
    left = list(wins)

    def evaluate_panel(trainer):
        won = left.pop(0)
        episodes = [
            Episode(i, f"task-{i}", "", i < won, 0.0, 0.0, 1, 0, 0) for i in range(10)
        ]  # fmt: skip
        return Evaluation("Test/Toy-v0", "test", episodes)

    monkeypatch.setattr(StepwiseTrainer, "evaluate_panel", evaluate_panel)


@pytest.mark.parametrize(
    ("wins", "best", "left"),
    [([1, 9, 2, 9, 4], "checkpoint-1", ["checkpoint-1", "checkpoint-4"]),
     ([1, 2, 3, 4, 5], "checkpoint-4", ["checkpoint-4"]),
     ([5, 1, 1, 1, 5], None, ["checkpoint-4"])],
)  # fmt: skip
def test_the_best_checkpoint_survives_rotation(tmp_path, monkeypatch, wins, best, left):
    """None: the starting model is the best, and no later one with the same rate replaces it."""
    panels(monkeypatch, wins)
    out = tmp_path / "out"
    figures = train(
        out, {"run.updates": 4, "run.save_every": 1, "run.keep": 1, "eval.every": 1}
    )  # fmt: skip
    assert names(out) == left
    written = json.loads((out / "best.json").read_text())
    assert written["checkpoint"] == best
    assert written["success_rate"] == max(wins) / 10
    assert figures["best"] == written


def test_the_best_one_is_saved_even_between_checkpoints(tmp_path, monkeypatch):
    panels(monkeypatch, [1, 9, 2])
    out = tmp_path / "out"
    train(out, {"run.save_every": 0, "eval.every": 1})
    assert "checkpoint-1" in names(out)
    assert_loadable(out / "checkpoint-1")


# -- a full disk --


def no_space(*args, **kwargs):
    raise OSError(28, "No space left on device")


def no_space_for_tensors(tensors, filename, **kwargs):
    Path(filename).write_bytes(b"half")
    raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")


def no_space_for_torch(state, file, **kwargs):
    Path(file).write_bytes(b"half")
    raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")


@pytest.mark.parametrize(
    ("owner", "name", "fail"),
    [(StepwiseTrainer, "_save_rng_state", no_space),
     (modeling_utils, "safe_save_file", no_space_for_tensors),
     (hf_trainer.torch, "save", no_space_for_torch)],
    ids=["os", "safetensors", "torch"],
)  # fmt: skip
def test_a_full_disk_leaves_the_earlier_checkpoints_whole(tmp_path, monkeypatch, owner, name, fail):
    out = tmp_path / "out"
    save, saved = StepwiseTrainer._save_checkpoint, []

    def fill_the_disk(trainer, *args):
        if saved:
            monkeypatch.setattr(owner, name, fail)
        saved.append(trainer.state.global_step)
        save(trainer, *args)

    monkeypatch.setattr(StepwiseTrainer, "_save_checkpoint", fill_the_disk)
    with pytest.raises(SaveError, match=r"checkpoint-2 could not be written.*whole.*checkpoint-1$"):
        train(out, {**SAVING, "run.updates": 3})
    monkeypatch.undo()
    assert saved == [1, 2]
    assert names(out) == ["checkpoint-1"]
    assert_loadable(out / "checkpoint-1")
    assert not list(out.glob(".*"))
    train(out, {**SAVING, "run.updates": 3, "run.resume": "latest"})  # when there is room again
    assert names(out) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]


def test_an_error_that_is_not_about_writing_stays_what_it_is(tmp_path, monkeypatch):
    def broken(*args):
        raise ValueError("something else")

    monkeypatch.setattr(StepwiseTrainer, "_save_rng_state", broken)
    with pytest.raises(ValueError, match=r"^something else$"):
        train(tmp_path / "out", SAVING)
    assert not list((tmp_path / "out").glob(".*"))


# -- stopping --


def collecting(monkeypatch, at: int, act) -> None:
    """``act`` while rollout number ``at`` is played."""
    collect = Collector.collect

    def collect_and_act(self, number, *rest):
        found = collect(self, number, *rest)
        if number == at:
            act()
        return found

    monkeypatch.setattr(Collector, "collect", collect_and_act)


def test_a_requested_stop_finishes_the_rollouts_updates_and_saves(tmp_path, monkeypatch, caplog):
    stops, build = [], StopAtBoundary.__init__

    def keep(self, *args, **kwargs):
        build(self, *args, **kwargs)
        stops.append(self)

    monkeypatch.setattr(StopAtBoundary, "__init__", keep)
    collecting(monkeypatch, 1, lambda: stops[0].request())
    out = tmp_path / "out"
    figures = train(out, {"run.updates": 5, "optim.mini_batches": 3})
    assert figures["update"] == 2
    assert names(out) == ["checkpoint-6"]
    assert not (out / "final").exists()
    monkeypatch.undo()
    figures = train(out, {"run.updates": 3, "optim.mini_batches": 3, "run.resume": "latest"})
    assert figures["update"] == 3
    assert (out / "final").is_dir()
    written = yaml.safe_load((out / "config.yaml").read_text())["run"]
    assert (written["updates"], written["resume"]) == (
        3,
        None,
    )  # as resumed, for another run to take
    with caplog.at_level("WARNING"):
        train(out, {"run.updates": 2, "optim.mini_batches": 3, "run.resume": "latest"})
    assert "is at update 2 of 2" in caplog.text
    assert "missing keys" not in caplog.text  # of tied weights
    assert yaml.safe_load((out / "config.yaml").read_text())["run"]["updates"] == 3


def test_a_stop_in_the_last_update_is_the_end_of_the_run(tmp_path, monkeypatch, config_file):
    collecting(monkeypatch, 1, lambda: signal.raise_signal(signal.SIGTERM))
    out = tmp_path / "out"
    assert command.main(["--config", str(config_file), "--output_dir", str(out)]) == 0
    assert (out / "final").is_dir()
    assert names(out) == ["checkpoint-2"]


SCRIPT = """
import sys, time
from pathlib import Path
import tests.training
from trainers.trl_adapter.collect import Collector
from trainers.trl_adapter.command import main

here, collect = Path(sys.argv[1]), Collector.collect

def slow(self, number, *rest):
    found = collect(self, number, *rest)
    if number in (1, 3):
        (here / f"at-{number}").touch()
        while not (here / f"go-{number}").exists():
            time.sleep(0.02)
    return found

Collector.collect = slow
arguments = ["--config", str(here / "toy.yaml"), "--output_dir", str(here / "out"), "--run.updates=9",
             "--save_every=1", "--keep=9", "--optim.mini_batches=2"]
(here / "first").write_text(str(main(arguments)))
sys.exit(main([*arguments, "--resume=latest"]))
"""


def test_ctrl_c_stops_at_a_boundary_and_twice_at_once(config_file, tmp_path):
    log = tmp_path / "log"

    def wait_for(found, seconds=90.0):
        end = time.monotonic() + seconds
        while not found():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def interrupt(warnings: int):
        process.send_signal(signal.SIGINT)
        wait_for(lambda: log.read_text().count("finishing the current updates") == warnings)

    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            stdout=file, stderr=file, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            wait_for((tmp_path / "at-1").exists)
            interrupt(1)
            (tmp_path / "go-1").touch()
            wait_for((tmp_path / "at-3").exists)
            assert (tmp_path / "first").read_text() == "0"
            assert names(tmp_path / "out") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
            interrupt(2)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130, log.read_text()
        finally:
            process.kill()
            process.wait()
    assert "stopped; the last checkpoint is whole" in log.read_text()
    assert "stopped after update 2 of 9; the same command with --resume latest" in log.read_text()
    assert names(tmp_path / "out") == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    for checkpoint in checkpoints(tmp_path / "out"):
        assert_loadable(checkpoint)
    assert not list((tmp_path / "out").glob(".*"))
    assert [row["update"] for row in metrics(tmp_path / "out")] == [1, 2, 3]


# -- warm start --

SCHOOL = {
    "rollout.max_completion_tokens": 5, "warm_start.episodes": 20, "warm_start.epochs": 12,
    "warm_start.batch_size": 4, "warm_start.learning_rate": 1e-2,
}  # fmt: skip


def test_warm_start_teaches_the_reply_and_its_end_and_nothing_else(tmp_path, monkeypatch):
    config = toy_config({**SCHOOL, "warm_start.epochs": 1})
    folder = sft.model_folder(config, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = sft.expert_rows(config, folder)
    assert len(rows) == 60  # the expert waits twice, then wins
    parser = TagParser(reason="", untagged="action")
    said = []
    for row in rows:
        ids, mask = row["input_ids"], row["completion_mask"]
        reply = [i for i, inside in zip(ids, mask, strict=True) if inside]
        assert mask == [0] * (len(ids) - len(reply)) + [1] * len(reply)
        assert reply.count(tokenizer.eos_token_id) == 1
        assert reply[-1] == tokenizer.eos_token_id
        said.append(parser.parse(tokenizer.decode(reply, skip_special_tokens=True)))
    assert all(reading.valid for reading in said)
    assert [reading.action for reading in said] == ["wait", "wait", "win"] * 20

    seen = []
    step = sft.SFTTrainer.training_step

    def spy(trainer, model, inputs, *rest):
        seen.append(inputs)
        return step(trainer, model, inputs, *rest)

    monkeypatch.setattr(sft.SFTTrainer, "training_step", spy)
    sft.warm_start(config, folder, tmp_path / "warm", progress=False)
    taught = sorted(
        tuple(ids[labels != -100].tolist())
        for inputs in seen
        for ids, labels in zip(inputs["input_ids"], inputs["labels"], strict=True)
    )
    assert taught == sorted(
        tuple(
            i for i, inside in zip(row["input_ids"], row["completion_mask"], strict=True) if inside
        )
        for row in rows
    )


def test_a_warm_start_makes_the_model_win(tmp_path):
    rates = {}
    for name, overrides in (("cold", {}), ("warm", SCHOOL)):
        out = tmp_path / name
        train(out, {**SCHOOL, "warm_start.episodes": 0, **overrides, "run.updates": 1,
                    "optim.learning_rate": 0.0, "eval.every": 1})  # fmt: skip
        rates[name] = metrics(out)[0]["eval_success_rate"]
    assert rates["cold"] < 0.5
    assert rates["warm"] == 1.0


def test_an_environment_without_an_expert_has_no_warm_start(tmp_path, config_file, capsys):
    code = command.main(
        ["--config", str(config_file), "--output_dir", str(tmp_path / "out"),
         "--env.id=Test/Silent-v0", "--warm_start.episodes=4"]
    )  # fmt: skip
    assert code == 2
    said = capsys.readouterr().err
    assert "Test/Silent-v0 has no scripted expert to start from" in said


def test_an_expert_whose_replies_are_longer_than_allowed_is_refused(tmp_path, config_file, capsys):
    arguments = ["--config", str(config_file), "--output_dir", str(tmp_path / "out")]
    code = command.main([*arguments, "--warm_start.episodes=4", "--max_completion_tokens=2"])
    assert code == 2
    assert "rollout.max_completion_tokens (2) is too small" in capsys.readouterr().err


def test_the_sft_command_writes_a_model_folder_once(tmp_path, config_file, capsys):
    out = tmp_path / "model"
    arguments = ["--config", str(config_file), "--output_dir", str(out),
                 "--max_completion_tokens=5", "--warm_start.episodes=4", "--warm_start.epochs=1"]  # fmt: skip
    assert sft.main([*arguments, "--dry-run"]) == 0
    assert not out.exists()
    start = tmp_path / ".model.start" / "tiny"  # left by a command that was killed
    start.mkdir(parents=True)
    (start / "config.json").write_text("{}")
    assert sft.main(arguments) == 0, capsys.readouterr().err
    AutoModelForCausalLM.from_pretrained(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "toy.yaml"]
    assert sft.main(arguments) == 2
    assert f"{out} is not empty: choose another --output_dir" in capsys.readouterr().err
    figures = train(
        tmp_path / "run",
        {"model.path": str(out), "rollout.max_completion_tokens": 5, "run.updates": 1},
    )
    assert figures["update"] == 1
