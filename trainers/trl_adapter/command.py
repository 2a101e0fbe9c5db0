"""The command line of training: one YAML file, any field on top of it, help for all of them."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import yaml

from agent_envs.core import AgentEnvError, OptionError
from trainers.trl_adapter.config import TrainConfig, leaves, load_config, with_overrides
from trainers.trl_adapter.parts import part
from trainers.trl_adapter.schema import default_of

logger = logging.getLogger("trainers.trl_adapter")


def parser(name: str, text: str) -> argparse.ArgumentParser:
    """The parser; its epilog lists every field of the configuration."""
    made = argparse.ArgumentParser(
        prog=f"python -m trainers.trl_adapter{'' if name == 'train' else '.' + name}",
        description=text,
        epilog=field_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # else --config_x, or a field named like an option, would be taken for one
    )
    made.add_argument("--config", help="YAML file, such as examples/cpu/gigpo.yaml")
    made.add_argument("--output_dir", "--output-dir", help="short for --run.output_dir")
    made.add_argument(
        "--dry-run", action="store_true", help="check everything, print the full config, stop"
    )
    return made


def field_help() -> str:
    """One line per field: name, default, what it does."""
    lines = ["Any field of the config: --section.field VALUE, or --field VALUE where unique", ""]
    for path, _, item in leaves():
        lines.append(f"  --{path} (default {default_of(item)!r})")
        lines.append(f"        {item.metadata['help']}")
    return "\n".join(lines)


def command_line(
    name: str, text: str, arguments: Sequence[str] | None
) -> tuple[TrainConfig, argparse.Namespace]:
    """(config, the command's own options); OptionError for anything that is not understood."""
    options, rest = parser(name, text).parse_known_args(arguments)
    overrides = dict(_overrides(rest))
    if options.output_dir is not None:
        overrides["run.output_dir"] = options.output_dir
    config = TrainConfig() if options.config is None else load_config(options.config)
    return with_overrides(config, overrides), options


def _overrides(rest: Sequence[str]) -> Mapping[str, Any]:
    """``--key value`` and ``--key=value``; values are read as YAML reads them."""
    found: dict[str, Any] = {}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise OptionError(f"expected --field VALUE, got {word!r}")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words:
                raise OptionError(f"--{key} needs a value")
            value = words.pop(0)
        try:
            found[key.replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError:
            found[key.replace("-", "_")] = value
    return found


def guarded(act: Callable[[], int]) -> int:
    """Run a command: errors are one line and exit code 2 (a traceback with AGENT_ENVS_DEBUG=1)."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # names that TRL's own configuration still uses; nothing that a user could change
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    for noisy in ("httpx", "httpcore", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        return act()
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the last checkpoint is whole\n")
        return 130
    except (AgentEnvError, gymnasium.error.Error, OSError, ValueError, ImportError) as error:
        if os.environ.get("AGENT_ENVS_DEBUG"):
            raise
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2


DESCRIPTION = """Train a language model as an agent: one YAML file says everything.

  python -m trainers.trl_adapter --config examples/cpu/gigpo.yaml
  python -m trainers.trl_adapter --config examples/cpu/gigpo.yaml --algorithm grpo --run.updates 20
  python -m trainers.trl_adapter --config examples/cpu/gigpo.yaml --resume latest
  python -m trainers.trl_adapter.plot runs/gigpo runs/grpo     # compare; each run draws its own curves.png
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 0, 2 on bad input, 130 after a second Ctrl-C."""

    def act() -> int:
        config, options = command_line("train", DESCRIPTION, arguments)
        run = part("run")  # only here: PyTorch takes seconds, and help and a typo need none
        speaks = part("seam").main_process()  # one of several processes
        if options.dry_run:
            text = run.dry_run(config)
            if speaks:
                sys.stdout.write(text)  # there, so that it can become a file
            return 0
        part("loading").quiet()
        figures = run.train(config)
        if not speaks:
            return 0
        figures |= run.draw_curves(Path(figures["output_dir"]))
        logger.info("%s", yaml.safe_dump(figures, sort_keys=False).rstrip())
        if figures["update"] < config.run.updates:
            logger.info(
                "stopped after update %d of %d; the same command with --resume latest goes on",
                figures["update"], config.run.updates,
            )  # fmt: skip
        return 0

    return guarded(act)
