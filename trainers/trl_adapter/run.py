"""A whole run: config -> model folder -> trainer -> run folder."""

from __future__ import annotations

import logging
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml
from transformers import PrinterCallback, ProgressCallback

from agent_envs.cli.common import progress_bar
from agent_envs.core import AgentEnvError, OptionError
from agent_envs.core.errors import MissingExtra
from agent_envs.core.files import write_atomic
from trainers.trl_adapter import budget, seam
from trainers.trl_adapter import checkpoint as saving
from trainers.trl_adapter.callbacks import (
    AsConfigured,
    MetricsFile,
    Progress,
    SampleTrajectories,
    StopAtBoundary,
    StopIfAllFail,
    interruptible,
)
from trainers.trl_adapter.config import TrainConfig, from_dict, leaves, to_dict, with_overrides
from trainers.trl_adapter.engine import check_engine
from trainers.trl_adapter.models import check_environment, check_model
from trainers.trl_adapter.plot import CURVES_FILE, plot_runs
from trainers.trl_adapter.presets import resolve
from trainers.trl_adapter.sft import starting_model
from trainers.trl_adapter.splits import held_out_split
from trainers.trl_adapter.trainer import StepwiseTrainer

logger = logging.getLogger("trainers.trl_adapter")

LOGGERS = ("tensorboard", "trackio", "wandb")  # names of the packages too
_PATIENCE = 3  # updates on end of which every episode may fail
_FREE = ("run.", "eval.", "env.backend", "optim.micro_batch_tokens", "rollout.rows_per_generation")


def check(config: TrainConfig, offline: bool = False) -> TrainConfig:
    """The resolved config, after every check that needs no model weights.

    Args:
        offline: with the model's configuration alone, which need not be on this machine (``--dry-run``).

    Raises:
        OptionError: values that are unknown or do not fit together.
        MissingExtra: a logger that is not installed.
    """
    config = resolve(config)
    _check_folder(Path(config.run.output_dir))
    check_engine(config.trl, seam.world_size(), installed=not offline)
    seam.grpo_config(config, config.run.output_dir, seam.world_size())
    longest_prompt = budget.check_offline(config) if offline else check_model(config)
    check_environment(config, longest_prompt)
    if config.eval.every:
        held_out_split(config.env, config.eval)
    longest = config.rollout.max_completion_tokens
    if config.loss.overlong_buffer > longest:
        raise OptionError(
            f"loss.overlong_buffer ({config.loss.overlong_buffer}) must be at most "
            f"rollout.max_completion_tokens ({longest})"
        )
    for name in config.run.log_to:
        if name not in LOGGERS:
            raise OptionError(f"run.log_to: unknown {name!r}; valid: {', '.join(LOGGERS)}")
        try:
            __import__(name)
        except ImportError:
            if name == "tensorboard":
                raise MissingExtra("logging to TensorBoard", "train") from None
            raise OptionError(f"run.log_to: {name} is not installed: pip install {name}") from None
    return config


def train(config: TrainConfig) -> dict[str, Any]:
    """Run to the end (or to Ctrl-C); returns the last evaluation's figures and the run's folder.

    The folder then holds ``config.yaml``, ``metrics.jsonl``, ``checkpoint-*``, ``best.json``, ``final``
    (model folder), ``trajectories/`` and the logger's files.
    """
    budget.check_memory(resolve(config))
    config, run = check(config), Path(config.run.output_dir)
    start = _resume_point(config, run)
    if seam.main_process():
        _prepare(config, run, start)
    steps = config.steps_per_rollout
    stop = StopAtBoundary(steps, seam.any_process)
    shown = config.run.progress and seam.main_process()
    folder = starting_model(config, run, shown, fresh=start is None)
    bar = progress_bar("updates", config.run.updates, not shown)
    with bar as update:
        progress = Progress(update, config.run.updates, steps)
        trainer = StepwiseTrainer(
            folder,
            config,
            callbacks=[AsConfigured(), MetricsFile(run / "metrics.jsonl", steps), stop, progress],
            on_turn=progress.on_turn,
        )
        for callback in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(callback)
        episodes = config.rollout.groups * config.rollout.group_size
        patience = min(_PATIENCE, config.run.updates)
        trainer.add_callback(StopIfAllFail(trainer, episodes, patience))
        if config.run.trajectories:
            trainer.add_callback(
                SampleTrajectories(trainer, run / "trajectories", config.run.trajectories)
            )
        try:
            with interruptible(stop) if _is_main_thread() else nullcontext():
                trainer.train(resume_from_checkpoint=None if start is None else str(start))
            if trainer.update >= config.run.updates:  # not stopped before
                _finish(trainer, run)
        finally:
            trainer.close()
    figures = {"output_dir": str(run), "update": trainer.update, "best": trainer.best}
    if trainer.last_evaluation is not None:
        figures["eval_success_rate"] = trainer.last_evaluation.success_rate
        figures["eval_interval"] = list(trainer.last_evaluation.interval)
    return figures


def _prepare(config: TrainConfig, run: Path, start: Path | None) -> None:
    """The run's folder and ``config.yaml``; a finished run stays as it is, and that is said."""
    if start is None:
        _make_folder(run)
        _clear(run)
    done = 0 if start is None else saving.step_of(start) // config.steps_per_rollout
    if done < config.run.updates:
        _write_config(config, run)  # a resumed run may change some of it
        return
    logger.warning(
        "nothing left to train: %s is at update %d of %d; --run.updates %d would go on",
        run, done, config.run.updates, done + config.run.updates,
    )  # fmt: skip


def _write_config(config: TrainConfig, run: Path) -> None:
    """``config.yaml``, as another run would take it: from the start, whatever this one resumed."""
    values = to_dict(with_overrides(config, {"run.resume": None}))
    write_atomic(run / "config.yaml", yaml.safe_dump(values, sort_keys=False).encode())


def _finish(trainer: StepwiseTrainer, run: Path) -> None:
    """The final weights as a model folder."""
    main, wait = bool(trainer.args.should_save), trainer.accelerator.wait_for_everyone
    with saving.staged(run, "final", main, wait) as staging:
        trainer.save_model(str(staging / "final"))


def _check_folder(run: Path) -> None:
    above = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not above.is_dir():
        raise OptionError(f"run.output_dir {run}: {above} is a file; name another folder")


def _make_folder(run: Path) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"run.output_dir {run} cannot be made: {error.strerror}") from error


def _clear(run: Path) -> None:
    """Remove what a run without checkpoints left here, perhaps one with other numbers."""
    shutil.rmtree(run / "trajectories", ignore_errors=True)
    for name in ("best.json", "metrics.jsonl"):
        (run / name).unlink(missing_ok=True)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _resume_point(config: TrainConfig, run: Path) -> Path | None:
    """The checkpoint to go on from; refuses other numbers than the run began with."""
    if config.run.resume is None:
        whole = saving.checkpoints(run)
        if whole:
            raise OptionError(
                f"{run} holds a run already ({whole[-1].name}): resume it with --resume latest, or "
                "choose another --output_dir"
            )
        return None
    path = saving.checkpoint_to_resume(run, config.run.resume, config.steps_per_rollout)
    file = run / "config.yaml"
    if file.is_file():
        before = from_dict(yaml.safe_load(file.read_text(encoding="utf-8")))
        changed = [name for name in _leaf_names() if _leaf(before, name) != _leaf(config, name)]
        changed = [name for name in changed if not name.startswith(_FREE) or name == "run.seed"]
        if changed:
            raise OptionError(
                "a resumed run must go on as it began (only run.*, eval.*, env.backend and bounds of "
                "memory may change); changed: "
                + ", ".join(
                    f"{name} ({_leaf(before, name)!r} -> {_leaf(config, name)!r})"
                    for name in changed
                )
            )
    return path


def _leaf_names() -> list[str]:
    return [path for path, _, _ in leaves()]


def _leaf(config: TrainConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def draw_curves(run: Path) -> dict[str, str]:
    """``curves.png`` of a run: {"curves": its path}, {} where that fails."""
    try:
        return {"curves": str(plot_runs([run], run / CURVES_FILE))}
    except (AgentEnvError, OSError) as error:  # the run itself is whole
        logger.warning("no curves: %s", error)
        return {}


def dry_run(config: TrainConfig) -> str:
    """The whole configuration, checked, and as comments the memory that it needs."""
    config = check(config, offline=True)
    memory = "".join(f"# {line}\n" for line in budget.report(config).splitlines())
    # as comments: what is printed is still the configuration, as a file
    return str(yaml.safe_dump(to_dict(config), sort_keys=False)) + memory
