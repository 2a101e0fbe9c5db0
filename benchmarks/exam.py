"""A model on every held-out task, several plays of each: ``python -m benchmarks.exam CONFIG MODEL``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from trainers.trl_adapter.config import load_config, with_overrides
from trainers.trl_adapter.evaluate import evaluate_model


def examine(config_file: Path, model: Path, splits: list[str], plays: int) -> dict[str, list[int]]:
    """By split: episodes won and played."""
    config = with_overrides(load_config(config_file), {"eval.episodes": None})
    found: dict[str, list[int]] = {}
    for split in splits:
        results = [evaluate_model(config, model, split=split, seed=seed) for seed in range(plays)]
        episodes = [episode for result in results for episode in result.episodes]
        found[split] = [sum(episode.won for episode in episodes), len(episodes)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--splits", nargs="+", default=["valid_seen", "valid_unseen"])
    parser.add_argument("--plays", type=int, default=3, help="of each task, each with its own seed")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = examine(options.config, options.model, options.splits, options.plays)
    options.out.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
