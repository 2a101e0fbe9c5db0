"""Warm start: supervised learning of the scripted expert's decisions, with TRL's SFTTrainer.

``python -m trainers.trl_adapter.sft --config FILE.yaml --output_dir DIR`` writes a model folder that
``--model.path DIR`` starts from. Rows are tokenised here: a prompt exactly as reinforcement learning will
show it, and the reply that the parser reads back as the expert's action; the loss is on the reply only.

  python -m trainers.trl_adapter.sft --config examples/cpu/number_line.yaml --output_dir runs/warm
  python -m trainers.trl_adapter --config examples/cpu/number_line.yaml --model.path runs/warm \\
      --warm_start.episodes 0
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback, ProgressCallback
from trl import SFTConfig, SFTTrainer

from agent_envs.agent import Step
from agent_envs.cli.common import progress_bar
from agent_envs.core import OptionError
from trainers.trl_adapter import seam
from trainers.trl_adapter.callbacks import StepProgress
from trainers.trl_adapter.checkpoint import staged
from trainers.trl_adapter.command import command_line, guarded
from trainers.trl_adapter.config import TrainConfig, to_dict, with_overrides
from trainers.trl_adapter.loading import autocasts, load_causal, peft_config, quiet
from trainers.trl_adapter.models import (
    check_environment,
    check_model,
    expert_rollout,
    model_folder,
    won_steps,
)
from trainers.trl_adapter.policy import encode_chats
from trainers.trl_adapter.presets import resolve

logger = logging.getLogger("trainers.trl_adapter")


def expert_rows(config: TrainConfig, folder: Path) -> list[dict[str, list[int]]]:
    """``input_ids`` and ``completion_mask`` of each decision of the won expert episodes."""
    rollout = expert_rollout(config, folder, config.warm_start.episodes)
    steps = list(rollout.steps if config.warm_start.random else won_steps(rollout))
    if not steps:
        raise OptionError(f"the expert won none of its episodes of {config.env.id}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = encode_chats(
        tokenizer, [s.prompt.messages for s in steps], config.agent.chat_template_kwargs
    )
    rows, longest = [], config.rollout.max_completion_tokens
    for step, prompt in zip(steps, prompts, strict=True):
        said = _taught(step, config)
        reply = tokenizer.encode(said, add_special_tokens=False, split_special_tokens=True)
        reply.append(tokenizer.eos_token_id)
        if len(reply) > longest:
            raise OptionError(
                f"the expert's reply {said!r} has {len(reply)} tokens: "
                f"rollout.max_completion_tokens ({longest}) is too small"
            )
        rows.append(
            {
                "input_ids": [*prompt, *reply],
                "completion_mask": [0] * len(prompt) + [1] * len(reply),
            }
        )
    return rows


def _taught(step: Step, config: TrainConfig) -> str:
    view = step.prompt.view
    if config.warm_start.teach == "played" or view.expert_action is None:
        return step.completion.text
    return view.format_action(view.expert_action)


class _SFT(SFTTrainer):
    def _send_telemetry(self) -> None:
        """Nothing is sent anywhere."""


def _whole(trainer: SFTTrainer, config: TrainConfig) -> Any:
    """The trained model; an adapter that was made for the warm start is merged into its weights.

    Reinforcement learning then begins with an adapter of its own, and "the starting model" of a KL term is
    the warm-started one.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.merge_and_unload() if config.lora.rank else model


def warm_start(config: TrainConfig, folder: Path, out: Path, progress: bool = True) -> Path:
    """Fine-tune the model of ``folder`` on expert decisions; returns the folder of the result.

    Processes that train together share the rows of a batch, so all have to call this.
    """
    settings, work = config.warm_start, out.parent / f".{out.name}.sft"
    rows = expert_rows(config, folder)
    model = load_causal(folder, config.model, config.lora)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    args = SFTConfig(
        output_dir=str(work),
        seed=config.run.seed,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=-(-settings.batch_size // seam.world_size()),
        learning_rate=settings.learning_rate,
        max_grad_norm=settings.max_grad_norm,
        lr_scheduler_type="linear",
        # batches of equal length would be batches of one kind of situation: 12 % of replies
        # right after 100 steps of 64 rows, against 51 %
        train_sampling_strategy="random",
        max_length=None,
        completion_only_loss=True,
        bf16=autocasts(),
        gradient_checkpointing=config.model.gradient_checkpointing,
        report_to="none",
        save_strategy="no",
        logging_steps=20,
        dataloader_pin_memory=False,
    )
    trainer = _SFT(
        model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        peft_config=peft_config(config.lora),
    )  # fmt: skip
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    divided = seam.divided(trainer)
    if divided and config.lora.rank:
        raise OptionError(
            "a warm start with LoRA is merged on one process: not with weights divided over processes (FSDP, "
            "DeepSpeed ZeRO-3); run python -m trainers.trl_adapter.sft first, then train with --model.path"
        )
    with progress_bar("warm start", None, not progress) as bar:
        trainer.add_callback(StepProgress(bar))
        result = trainer.train()
    main = seam.main_process()
    with staged(out.parent, out.name, main, trainer.accelerator.wait_for_everyone) as staging:
        if divided:
            trainer.save_model(str(staging / out.name))  # all processes put the weights together
        elif main:
            _whole(trainer, config).save_pretrained(staging / out.name)
        if main:
            tokenizer.save_pretrained(staging / out.name)
            shutil.rmtree(work, ignore_errors=True)
    logger.info("warm start: %d decisions, loss %.3f", len(rows), result.training_loss)
    return out


def starting_model(
    config: TrainConfig, run: Path, progress: bool = True, fresh: bool = True
) -> Path:
    """The folder that training starts from: the model as it is, or after the warm start.

    Args:
        fresh: make anew what an earlier run, perhaps one with other numbers, left in the folder.
    """
    with seam.processes().main_process_first():
        if fresh and seam.main_process():
            for name in ("tiny", "tiny_vl", "warm"):
                shutil.rmtree(run / name, ignore_errors=True)
        folder = model_folder(config, run)
    if not config.warm_start.episodes:
        return folder
    out = run / "warm"
    return out if (out / "config.json").is_file() else warm_start(config, folder, out, progress)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; see the module's text."""

    def act(config: TrainConfig, options: Any) -> int:
        out = Path(config.run.output_dir)
        if not config.warm_start.episodes:
            config = with_overrides(config, {"warm_start.episodes": 200})
        config = resolve(config)
        check_environment(config, check_model(config))
        if out.is_dir() and any(out.iterdir()):
            raise OptionError(f"{out} is not empty: choose another --output_dir")
        if options.dry_run:
            if seam.main_process():
                sys.stdout.write(yaml.safe_dump(to_dict(config), sort_keys=False))
            return 0
        quiet()
        start = out.parent / f".{out.name}.start"
        folder = starting_model(with_overrides(config, {"warm_start.episodes": 0}), start)
        warm_start(config, folder, out, config.run.progress and seam.main_process())
        if seam.main_process():
            shutil.rmtree(start, ignore_errors=True)
        logger.info("model folder: %s", out)
        return 0

    return guarded(lambda: act(*command_line("sft", __doc__ or "", arguments)))


if __name__ == "__main__":
    sys.exit(main())
