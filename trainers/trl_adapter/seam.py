"""Where the adapter touches TRL: its configuration, and the few private members it relies on.

``tests/test_trl_contract.py`` checks all of it against the installed TRL.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import (
    DistributedType,
    broadcast_object_list,
    gather_object,
    parse_flag_from_env,
)
from transformers import SchedulerType
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import use_adapter

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.loading import autocasts
from trainers.trl_adapter.microbatch import SCALES

_OURS = "the adapter sets it; use {}"
REFUSED: dict[str, str] = {  # field of GRPOConfig -> why it cannot be set through `trl:`
    **{
        name: _OURS.format(ours)
        for name, ours in {
            "output_dir": "run.output_dir", "seed": "run.seed", "max_steps": "run.updates",
            "num_train_epochs": "run.updates", "save_steps": "run.save_every",
            "save_strategy": "run.save_every", "save_total_limit": "run.keep",
            "eval_steps": "eval.every", "eval_strategy": "eval.every",
            "eval_on_start": "eval.at_start", "report_to": "run.log_to",
            "logging_steps": "one row per update", "learning_rate": "optim.learning_rate",
            "weight_decay": "optim.weight_decay", "max_grad_norm": "optim.max_grad_norm",
            "lr_scheduler_type": "optim.schedule", "warmup_steps": "optim.warmup_steps",
            "steps_per_generation": "optim.mini_batches",
            "num_iterations": "optim.iterations", "num_generations": "rollout.group_size",
            "generation_batch_size": "rollout.groups",
            "per_device_train_batch_size": "optim.mini_batches and optim.micro_batch_tokens",
            "per_device_eval_batch_size": "eval.num_envs",
            "gradient_accumulation_steps": "optim.micro_batch_tokens",
            "max_completion_length": "rollout.max_completion_tokens",
            "temperature": "rollout.temperature", "top_p": "rollout.top_p",
            "top_k": "rollout.top_k", "loss_type": "loss.loss_type",
            "epsilon": "loss.clip_low", "epsilon_high": "loss.clip_high",
            "delta": "loss.dual_clip", "beta": "loss.kl_coef",
            "entropy_coef": "loss.entropy_coef",
            "importance_sampling_level": "loss.importance",
            "mask_truncated_completions": "loss.mask_truncated",
            "scale_rewards": "advantage.norm", "chat_template_kwargs": "agent.chat_template_kwargs",
            "gradient_checkpointing": "model.gradient_checkpointing",
            "model_init_kwargs": "model.dtype and model.attn_implementation",
            "quantization_config": "model.quantization",
            "resume_from_checkpoint": "run.resume", "disable_tqdm": "run.progress",
        }.items()
    },
    "reward_weights": "environments give one reward",
    "multi_objective_aggregation": "environments give one reward",
    "use_adaptive_entropy": "its controller counts micro-batches; set loss.entropy_coef",
    "top_entropy_quantile": "its quantile would depend on the micro-batches",
    "router_aux_loss_coef": "its mean would depend on the micro-batches",
    "log_completions": "see run.trajectories",
    "log_completions_hub_repo": "nothing is uploaded",
    "push_to_hub": "nothing is uploaded",
    "num_generations_eval": "evaluation plays every task once",
    "max_tool_calling_iterations": "environments take the place of tools",
    "remove_unused_columns": "there are no columns",
    "shuffle_dataset": "the run's seed decides the tasks",
    "sync_ref_model": "the reference is the starting model",
    "use_transformers_continuous_batching": "slower than generate on a CPU; use vLLM",
    "use_transformers_paged": "slower than generate on a CPU; use vLLM",
}  # fmt: skip

# the two left out wait for an evaluation loss, which there is not
SCHEDULES = sorted({kind.value for kind in SchedulerType} - {"reduce_lr_on_plateau", "greedy"})


def grpo_config(config: TrainConfig, output_dir: str | Path, world_size: int) -> GRPOConfig:
    """TRL's configuration of a resolved run.

    TRL's own batch only drives its data loader: rows are placeholders, and the collector decides what is
    played. ``trl:`` in the config reaches every field that the adapter neither sets nor refuses.

    Raises:
        OptionError: an unknown name, a field of TRL's that cannot be set, or TRL's own refusal.
    """
    check_extra(config.trl)
    one_of("loss.loss_type", config.loss.loss_type, SCALES)
    one_of("optim.schedule", config.optim.schedule, SCHEDULES)
    settings: dict[str, Any] = {
        "output_dir": str(output_dir),
        **_sampling(config),
        **_loss(config),
        **_optimization(config, world_size),
        **_rhythm(config),
        # defaults of ours, open to `trl:`
        "use_bias_correction_kl": False,
        "disable_dropout": not config.lora.dropout,
        "bf16": autocasts(),
        "dataloader_pin_memory": False,
        **config.trl,
    }
    try:
        return GRPOConfig(**settings)
    except (ValueError, TypeError) as error:
        raise OptionError(f"TRL's GRPOConfig: {error}") from error


def _sampling(config: TrainConfig) -> dict[str, Any]:
    rollout = config.rollout
    return {
        "max_completion_length": rollout.max_completion_tokens,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": rollout.top_k,
        "chat_template_kwargs": dict(config.agent.chat_template_kwargs),
    }


def _loss(config: TrainConfig) -> dict[str, Any]:
    loss = config.loss
    return {
        "loss_type": loss.loss_type,
        "importance_sampling_level": loss.importance,
        "epsilon": loss.clip_low,
        "epsilon_high": loss.clip_high,
        "delta": loss.dual_clip,
        # with beta TRL keeps the starting model; the trainer sets the loss's own weight afterwards
        "beta": loss.kl_coef or config.advantage.kl_in_reward,
        "entropy_coef": loss.entropy_coef,
        "scale_rewards": "none",
    }


def _optimization(config: TrainConfig, world_size: int) -> dict[str, Any]:
    """The optimizer, and the shape of the placeholder batch (an even number of rows)."""
    rollout, optim = config.rollout, config.optim
    rows = 2 * -(-rollout.groups * rollout.group_size // (2 * world_size * optim.mini_batches))
    return {
        "seed": config.run.seed,
        "max_steps": config.run.updates * config.steps_per_rollout,
        "per_device_train_batch_size": rows,
        "per_device_eval_batch_size": 2,
        "num_generations": 2,
        "steps_per_generation": optim.mini_batches,
        "num_iterations": optim.iterations,
        "gradient_accumulation_steps": 1,
        "shuffle_dataset": False,
        "learning_rate": optim.learning_rate,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        "lr_scheduler_type": optim.schedule,
        "warmup_steps": optim.warmup_steps,
        "gradient_checkpointing": config.model.gradient_checkpointing,
    }


def _rhythm(config: TrainConfig) -> dict[str, Any]:
    """When it logs, saves and evaluates: counted in updates by us, in optimizer steps by TRL."""
    run, evaluation, steps = config.run, config.eval, config.steps_per_rollout
    return {
        "logging_strategy": "steps",
        "logging_steps": steps,
        "logging_first_step": False,
        "save_strategy": "steps" if run.save_every else "no",
        "save_steps": max(run.save_every, 1) * steps,
        "eval_strategy": "steps" if evaluation.every else "no",
        "eval_steps": max(evaluation.every, 1) * steps,
        "eval_on_start": bool(evaluation.every) and evaluation.at_start and run.resume is None,
        "report_to": list(run.log_to) or "none",
    }


def check_extra(extra: dict[str, Any]) -> None:
    """OptionError for a ``trl:`` field that does not exist or would do nothing here."""
    known = {item.name for item in fields(GRPOConfig)}
    for name in extra:
        if name in REFUSED:
            raise OptionError(f"trl.{name} cannot be set here: {REFUSED[name]}")
        if name not in known:
            near = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise OptionError(f"trl.{name}: TRL's GRPOConfig has no such field{hint}")


def generate_single_turn(
    trainer: GRPOTrainer, prompt_ids: list[list[int]], fields: dict[str, Any] | None = None
) -> tuple[list[list[int]], list[list[float]] | None]:
    """TRL's sampler on token ids: ids of the replies, log-probabilities where the back end has them.

    ``fields``: pictures under the model's names; lists of lists are per token. ``num_generations=1``: vLLM's
    server mode would otherwise keep every n-th prompt only.
    """
    parameters = inspect.signature(trainer._generate_single_turn).parameters
    extra = {"num_generations": 1} if "num_generations" in parameters else {}
    ids, logprobs = trainer._generate_single_turn(prompt_ids, None, fields or {}, **extra)
    return [list(row) for row in ids], logprobs


def samples_together(trainer: GRPOTrainer) -> bool:
    """Is a call of the sampler one that all processes make together, with as many prompts each."""
    if trainer.accelerator.num_processes == 1:
        return False
    engine = trainer.use_vllm and (
        trainer.vllm_mode == "server" or trainer.vllm_tensor_parallel_size > 1
    )
    return bool(engine or divided(trainer))


@contextmanager
def accumulating(trainer: GRPOTrainer, model: Any) -> Iterator[None]:
    """Backward passes whose gradients are only added up: no exchange between processes, no step.

    DeepSpeed's engine steps inside ``accelerator.backward`` wherever gradients are to be synchronised.
    """
    accelerator = trainer.accelerator
    before = accelerator.sync_gradients
    with accelerator.no_sync(model):
        accelerator.sync_gradients = False
        try:
            yield
        finally:
            accelerator.sync_gradients = before


def divided(trainer: Any) -> bool:
    """Are the weights divided over the processes, so that each forward pass needs all of them."""
    accelerator = trainer.accelerator
    if accelerator.distributed_type == DistributedType.FSDP:
        return True
    plugin = accelerator.state.deepspeed_plugin
    return plugin is not None and plugin.zero_stage == 3


def suppress(args: GRPOConfig, ids: list[int]) -> None:
    """Keep ``ids`` out of sampled replies, beside those that ``trl.generation_kwargs`` keeps out."""
    given = dict(args.generation_kwargs or {})
    given["suppress_tokens"] = sorted({*given.get("suppress_tokens", ()), *ids})
    args.generation_kwargs = given


@contextmanager
def sampling_temperature(trainer: GRPOTrainer, temperature: float | None) -> Iterator[None]:
    """Sampling at ``temperature`` for a while; 0 takes the likeliest token, None leaves it as it is."""
    holder, name = (
        (trainer.vllm_generation, "temperature")
        if trainer.use_vllm
        else (trainer, "generation_config")
    )
    before = getattr(holder, name)
    if temperature is not None:
        changed = temperature if trainer.use_vllm else _with_temperature(before, temperature)
        setattr(holder, name, changed)
    try:
        yield
    finally:
        setattr(holder, name, before)


def _with_temperature(generation_config: Any, temperature: float) -> Any:
    changed = copy.deepcopy(generation_config)
    changed.do_sample = temperature > 0
    if temperature > 0:
        changed.temperature = temperature
    else:
        changed.temperature = changed.top_p = 1.0
        changed.top_k = 50  # transformers' own defaults, which it accepts beside greedy decoding
    return changed


def corrects_sampling(trainer: GRPOTrainer) -> bool:
    """Will TRL's loss ask for importance ratios between the sampling engine and the trainer."""
    return bool(trainer.use_vllm and trainer.vllm_importance_sampling_correction)


def reference_adapter(trainer: GRPOTrainer) -> AbstractContextManager[Any]:
    """With a PEFT model: its adapter as it was at the start (or none) in place of the trained one."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    name = "ref" if "ref" in model.peft_config else None
    context: AbstractContextManager[Any] = use_adapter(model, adapter_name=name)
    return context


def processes() -> PartialState:
    """Those that train together.

    accelerate itself looks at ``ACCELERATE_USE_CPU`` only when the trainer is made; until then each of
    several processes on CPUs would take itself for the only one.

    Raises:
        OptionError: a launcher started more processes than accelerate sees.
    """
    state = PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
    started = int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1
    if started != state.num_processes:
        raise OptionError(
            f"{started} processes were started, but accelerate sees {state.num_processes} (no GPU?): to "
            "train with several processes on CPUs set ACCELERATE_USE_CPU=true"
        )
    return state


def world_size() -> int:
    """Number of processes that train together."""
    return int(processes().num_processes)


def main_process() -> bool:
    """Is this the process that writes the run's files."""
    return bool(processes().is_main_process)


def any_process(flag: bool) -> bool:
    """Whether ``flag`` is set on one process at least. All have to call this."""
    return any(gather_object([flag]))


def from_main_process(value: Any) -> Any:
    """What the main process has, on all of them."""
    return broadcast_object_list([value])[0]
