"""A trained model on held-out tasks: ``python -m trainers.trl_adapter.evaluate RUN [--split S] [--json]``."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_envs.core import OptionError
from agent_envs.evaluation import Evaluation
from trainers.trl_adapter.command import guarded
from trainers.trl_adapter.config import TrainConfig, load_config, with_overrides
from trainers.trl_adapter.loading import quiet
from trainers.trl_adapter.trainer import StepwiseTrainer

logger = logging.getLogger("trainers.trl_adapter")


def evaluate_model(
    config: TrainConfig,
    model: Path,
    *,
    split: str | None = None,
    seed: int | None = None,
    episodes: int | None = None,
) -> Evaluation:
    """``model`` (a folder) on the panel of ``config``: its environment, prompts, memory, parser, temperature.

    Args:
        split: instead of ``eval.split``.
        seed: of the sampling, instead of ``eval.seed``.
        episodes: tasks played; instead of ``eval.episodes``.
    """
    changes: dict[str, Any] = {
        "model.path": str(model), "warm_start.episodes": 0, "run.log_to": [],
        "run.trajectories": 0, "run.progress": False,
    }  # fmt: skip
    given = {"eval.split": split, "eval.seed": seed, "eval.episodes": episodes}
    changes |= {name: value for name, value in given.items() if value is not None}
    with tempfile.TemporaryDirectory() as out:
        trainer = StepwiseTrainer(model, with_overrides(config, changes), output_dir=out)
        try:
            return trainer.evaluate_panel()
        finally:
            trainer.close()


def _run_of(run: Path, model: str | None) -> tuple[TrainConfig, Path]:
    """A run's configuration and the model to look at; OptionError where one is missing."""
    file = run / "config.yaml"
    if not file.is_file():
        raise OptionError(f"{run} is no folder of a run: it has no config.yaml")
    folder = run / (model or "final")
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        there = sorted(p.name for p in run.iterdir() if (p / "config.json").is_file())
        raise OptionError(
            f"{folder} holds no model; in {run} there are: {', '.join(there) or 'none'}"
        )
    return load_config(file), folder


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.trl_adapter.evaluate",
        description="Play held-out tasks with a model that a run has trained, with the run's own settings.",
        epilog="example, an earlier checkpoint with another seed of the sampling:\n"
        "  python -m trainers.trl_adapter.evaluate runs/number_line --model checkpoint-80 --seed 3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="folder of a run (it holds config.yaml)")
    parser.add_argument("--model", help="folder in it, such as checkpoint-80; default: final")
    parser.add_argument("--split", help="default: the run's eval.split")
    parser.add_argument("--seed", type=int, help="of the sampling; default: the run's eval.seed")
    parser.add_argument("--episodes", type=int, help="tasks to play; default: the run's")
    parser.add_argument("--json", action="store_true", help="print all episodes as JSON")
    options = parser.parse_args(arguments)

    def act() -> int:
        quiet()
        config, folder = _run_of(options.run, options.model)
        result = evaluate_model(
            config, folder, split=options.split, seed=options.seed, episodes=options.episodes
        )
        low, high = result.interval
        logger.info(
            "%s, %s, %s: %.3f of %d episodes won (95 %%: %.3f to %.3f), %.1f steps, %.1f %% invalid actions",
            folder, result.env_id, result.split, result.success_rate, len(result.episodes), low, high,
            result.mean_steps, 100 * result.invalid_action_rate,
        )  # fmt: skip
        if options.json:
            sys.stdout.write(json.dumps(result.to_dict()) + "\n")
        return 0

    return guarded(act)


if __name__ == "__main__":
    sys.exit(main())
