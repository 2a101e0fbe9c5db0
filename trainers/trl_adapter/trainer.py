"""The trainer: TRL's GRPOTrainer fed with step-wise group rollouts.

One update: play G x N episodes, one sample per decision; turn rewards into advantages; take
``mini_batches`` x ``iterations`` optimizer steps with TRL's loss. What is overridden, and why it can be,
stands in ``docs/training.md``; ``tests/test_trl_contract.py`` watches the installed TRL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer
from trl import GRPOConfig

from agent_envs import evaluate
from agent_envs.agent import Rollout, Turn
from agent_envs.core import OptionError
from agent_envs.core.seeding import keyed_seed
from agent_envs.evaluation import Evaluation
from trainers.gigpo.columns import Floats
from trainers.trl_adapter import checkpoint as saving
from trainers.trl_adapter import seam, vision
from trainers.trl_adapter.collect import Collector, agent_parts, make_agent
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.correction import importance_ratio
from trainers.trl_adapter.critic import Critic, SharedTrunk, value_model
from trainers.trl_adapter.engine import check_engine
from trainers.trl_adapter.estimators import Estimate, Tokens, estimate
from trainers.trl_adapter.loading import dtype_of, is_adapter, load_causal, peft_config
from trainers.trl_adapter.lockstep import Lockstep
from trainers.trl_adapter.models import check_context, context_of
from trainers.trl_adapter.penalties import overlong_penalty
from trainers.trl_adapter.policy import ModelPolicy
from trainers.trl_adapter.presets import preset_of, resolve
from trainers.trl_adapter.samples import Samples, Tensors, to_device, token_tensors
from trainers.trl_adapter.splits import held_out_split
from trainers.trl_adapter.steps import MicrobatchTrainer

_SAMPLING, _EVALUATION = 0x5A3, 0xE7A1


class StepwiseTrainer(MicrobatchTrainer):
    """Trains a causal LM on the episodes of a group env.

    Args:
        model: a Hugging Face model folder, or a model that was loaded from one.
        config: the run; open fields are filled in by the algorithm's preset.
        tokenizer: default that of the folder.
        output_dir: default ``config.run.output_dir``.
        callbacks: transformers' callbacks.
        on_turn: called after each turn of a rollout, for progress.

    Raises:
        OptionError: numbers that do not fit together; the message holds the valid ones.
    """

    algorithm: str | None = None  # set by the named trainers
    control: Any
    generation_config: Any

    def __init__(
        self,
        model: str | Path | Any,
        config: TrainConfig,
        *,
        tokenizer: Any = None,
        output_dir: str | Path | None = None,
        callbacks: list[Any] | None = None,
        on_turn: Callable[[Turn], None] = lambda turn: None,
    ) -> None:
        if self.algorithm is not None:
            config = replace(config, algorithm=self.algorithm)
        self.config = config = resolve(config)
        check_engine(config.trl, seam.world_size())
        folder = str(model if isinstance(model, str | Path) else model.config.name_or_path)
        if isinstance(model, str | Path):
            model = load_causal(folder, config.model, config.lora)
        processing = tokenizer or _processing(folder, model.config)
        self._sees = hasattr(processing, "tokenizer")  # a processor holds one, a tokenizer doesn't
        if self._sees:
            vision.check_vision(config)
        if not any(p.requires_grad for p in model.parameters()):
            raise OptionError(f"{folder}: no parameter of the model is trainable")
        self._max_prompt = check_context(config, context_of(model.config))
        args = self._arguments(model.config, output_dir)
        rows = args.per_device_train_batch_size * args.steps_per_generation * args.world_size // 2
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""] * (rows * config.run.updates)}),
            eval_dataset=Dataset.from_dict({"prompt": [""]}),
            processing_class=processing,
            callbacks=callbacks,
            peft_config=peft_config(config.lora),
        )
        self.beta = config.loss.kl_coef  # args.beta may stand for a KL penalty in the reward
        self.preset = preset_of(config.algorithm)
        self._staging: Path | None = None
        self.best: dict[str, Any] | None = None
        self.last_rollout: Rollout | None = None
        self.last_evaluation: Evaluation | None = None
        self.on_turn = on_turn
        self.critic = self._make_critic(folder) if self.preset.critic else None
        self._prepare_playing(processing)
        space = self.collector.agent.group.single_observation_space
        vision.check_pictures(space, self._sees, folder)

    def _arguments(self, model_config: Any, output_dir: str | Path | None) -> GRPOConfig:
        """TRL's configuration of this run."""
        folder = self.config.run.output_dir if output_dir is None else output_dir
        args = seam.grpo_config(self.config, folder, seam.world_size())
        if self.config.rollout.groups % args.world_size:
            raise OptionError(
                f"rollout.groups ({self.config.rollout.groups}) must be a multiple of the number of "
                f"processes ({args.world_size}), so that no group is torn apart"
            )
        if self._sees:
            seam.suppress(args, vision.never_sampled(model_config))
        return args

    def _prepare_playing(self, processing: Any) -> None:
        """The policy, the agent's parts and the collector of this process's groups."""
        config, world = self.config, self.accelerator.num_processes
        tokenizer = getattr(processing, "tokenizer", processing)
        self.policy = self._make_policy(processing, tokenizer)
        self._parts = agent_parts(
            config.env.id, config.agent, tokenizer, self._max_prompt,
            self._encoder.size_of if self._encoder else None,
        )  # fmt: skip
        groups = config.rollout.groups // world
        self.collector = Collector(
            make_agent(config.env, groups, config.rollout.group_size, self._parts),
            self.policy,
            config.rollout,
            seed=config.run.seed,
            tasks=config.env.tasks,
            first_group=groups * self.accelerator.process_index,
            reduce=self._sum,
            settle=self._settle,
        )

    def _make_policy(self, processing: Any, tokenizer: Any) -> ModelPolicy:
        template = self.config.agent.chat_template_kwargs
        options: dict[str, Any] = {
            "max_prompt_tokens": self._max_prompt,
            "max_completion_tokens": self.config.rollout.max_completion_tokens,
            "eos_ids": self.eos_token_ids,
            "rows": self.config.rollout.rows_per_generation,
            "template": template,
        }

        def generate(*asked: Any) -> Any:
            return seam.generate_single_turn(self, *asked)

        self._settle: Callable[[], None] = lambda: None
        if seam.samples_together(self):
            if self._sees:
                raise OptionError(
                    "pictures are sampled by each process for itself: not with weights divided over "
                    "processes (FSDP, DeepSpeed ZeRO-3); use DDP or ZeRO-2"
                )
            generate = Lockstep(generate, self._max, filler=[int(tokenizer.eos_token_id)])
            self._settle = generate.settle
        self._encoder: vision.PictureEncoder | None = None
        if not self._sees:
            return ModelPolicy(tokenizer, generate, **options)
        image_id = self.model.config.image_token_id
        self._encoder = vision.PictureEncoder(processing, image_id, template)
        return vision.PicturePolicy(self._encoder, tokenizer, generate, **options)

    def _make_critic(self, folder: str) -> Critic:
        config, world = self.config.critic, self.accelerator.num_processes
        policy = self.accelerator.unwrap_model(self.model)
        if config.share_trunk:
            return Critic(SharedTrunk(policy), config, processes=world)
        if is_peft_model(policy) and is_adapter(folder):
            raise OptionError(
                f"{folder} is an adapter: PPO's critic needs critic.share_trunk, or a whole model"
            )
        dtype = dtype_of(self.config.model.dtype)
        own = value_model(folder, dtype).to(self.accelerator.device)
        return Critic(own, config, processes=world)

    # -- playing ----------------------------------------------------------------------------------

    @property
    def update(self) -> int:
        """Rollouts learned from so far."""
        return int(self.state.global_step) // self.config.steps_per_rollout

    @contextmanager
    def sampling(self, *key: int, temperature: float | None = None) -> Iterator[None]:
        """Model in evaluation mode, and random numbers that depend on ``key`` only."""
        with (
            seam.sampling_temperature(self, temperature),
            self._evaluation_mode(),
            torch.random.fork_rng(),
        ):
            torch.manual_seed(keyed_seed(self.config.run.seed, *key))
            yield

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Tensors:
        """A rollout as TRL's batch. ``inputs`` are placeholders: the collector decides what is played."""
        begun = time.perf_counter()
        before = self.policy.completion_tokens
        with self.sampling(_SAMPLING, self.update, self.accelerator.process_index):
            collected = self.collector.collect(self.update, self.on_turn)
        played = time.perf_counter() - begun
        samples, self.last_rollout = collected.samples, collected.rollout
        batch = to_device(self._tensors(samples), self.accelerator.device)
        found = self._estimate(batch, samples)
        result = self._with_advantages(batch, found, len(samples))
        tokens = float(self._sum(np.array([self.policy.completion_tokens - before], np.float64))[0])
        self.record(
            **collected.figures,
            **({} if found.kl is None else {"kl_reward": found.kl}),
            tokens_generated=tokens,
            rollout_seconds=played,
            tokens_per_second=tokens / max(played, 1e-9),
        )
        return result

    def _tensors(self, samples: Samples) -> Tensors:
        """All processes get as many rows, a multiple of the mini-batches; the rest has weight zero."""
        mini = self.config.optim.mini_batches
        most = int(self._max(torch.tensor([len(samples)]))[0])
        active = samples.active
        if self.config.loss.mask_truncated:
            active = active & ~samples.cut
        rows = max(-(-most // mini), 1) * mini
        tensors = token_tensors(samples, rows, int(self._tokenizer.pad_token_id), active)
        if self._encoder is not None:
            image_id = self._encoder.image_id
            tensors.update(vision.picture_tensors(samples.pictures, tensors, image_id))
        return tensors

    def _estimate(self, batch: Tensors, samples: Samples) -> Estimate:
        """Log-probabilities and values where they are needed, then the algorithm's advantages."""
        config, size = self.config, len(samples)
        engine = batch.pop("sampling_per_token_logps", None)
        engine = engine if seam.corrects_sampling(self) else None
        if config.steps_per_rollout > 1 or config.advantage.kl_in_reward or engine is not None:
            batch["old_per_token_logps"] = self._log_probs(batch)
        if engine is not None:
            self._correct(batch, engine)
        if config.loss.kl_coef or config.advantage.kl_in_reward:
            batch["ref_per_token_logps"] = self._reference_log_probs(batch)
        if self.critic is not None:
            batch["values"] = self._in_parts(batch, self.critic.values)

        def array(name: str) -> Floats | None:
            return batch[name][:size].float().cpu().numpy() if name in batch else None

        tokens = Tokens(
            batch["completion_mask"][:size].bool().cpu().numpy(),
            array("old_per_token_logps"), array("ref_per_token_logps"), array("values"),
        )  # fmt: skip
        if config.loss.overlong_buffer:
            samples = replace(samples, reward=samples.reward + self._overlong(samples))
        if self._sum(np.array([tokens.mask.sum()], np.float64))[0] < 2:
            shape = tokens.mask.shape  # nothing to compare or to whiten
            return Estimate(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        return estimate(self.preset.estimator, samples, tokens, config.advantage, self._sum)

    def _correct(self, batch: Tensors, engine: Tensor) -> None:
        """TRL multiplies the loss by ``importance_sampling_ratio``."""
        old, mask = batch["old_per_token_logps"], batch["completion_mask"]
        ratio = importance_ratio(
            old, engine, mask, mode=self.args.vllm_importance_sampling_mode,
            low=self.args.vllm_importance_sampling_clip_min,
            high=self.args.vllm_importance_sampling_clip_max,
        )  # fmt: skip
        batch["importance_sampling_ratio"] = ratio
        gap = torch.where(mask.bool(), (old - engine).abs(), torch.nan)
        self.record(
            sampling_logp_difference=float(gap.nanmean().nan_to_num()),
            importance_ratio_max=float(ratio.max()), importance_ratio_min=float(ratio.min()),
        )  # fmt: skip

    def _overlong(self, samples: Samples) -> Floats:
        loss, limit = self.config.loss, self.config.rollout.max_completion_tokens
        return overlong_penalty(
            np.array([len(ids) for ids in samples.completion_ids], np.float32),
            limit=limit, buffer=loss.overlong_buffer, size=loss.overlong_penalty,
        )  # fmt: skip

    def _with_advantages(self, batch: Tensors, found: Estimate, size: int) -> Tensors:
        """TRL's batch: a (rows, ...) tensor first, since that gives it the number of rows."""
        mask = batch["completion_mask"]
        columns = found.advantages if found.advantages.ndim == 2 else found.advantages[:, None]
        advantages = torch.zeros(mask.shape, device=mask.device)
        advantages[:size] = torch.from_numpy(np.ascontiguousarray(columns, np.float32)).to(
            advantages
        )
        if found.advantages.ndim == 1:
            advantages = advantages[:, 0]
        result = {"advantages": advantages, **batch}
        if found.returns is not None and self.critic is not None:
            returns = torch.zeros(mask.shape, device=mask.device)
            returns[:size] = torch.from_numpy(found.returns).to(returns)
            result["returns"] = returns
        # normaliser of TRL's token-mean losses: all tokens that count, of all processes
        result["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        active = mask.any(1)[:size]
        self.record(
            advantage_abs_mean=float(advantages[:size][active].abs().mean())
            if active.any()
            else 0.0
        )
        return result

    # -- log-probabilities ------------------------------------------------------------------------

    def _log_probs(self, batch: Tensors, model: Any = None) -> Tensor:
        def score(part: Tensors) -> Tensor:
            ids = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
            mask = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)
            log_probs: Tensor = self._get_per_token_logps_and_entropies(
                model or self.model, ids, mask, part["completion_ids"].shape[1],
                **vision.fields_of(part),
            )[0]  # fmt: skip
            return log_probs

        with self._evaluation_mode():
            return self._in_parts(batch, score)

    def _reference_log_probs(self, batch: Tensors) -> Tensor:
        """Of the starting model: TRL's copy, or the adapter as it was at the start."""
        if self.ref_model is not None:
            return self._log_probs(batch, self.ref_model)
        with seam.reference_adapter(self):
            return self._log_probs(batch)

    # -- evaluating and saving ----------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Every task of the held-out panel once. Runs on the main process; all get its figures."""
        metrics: dict[str, Any] = {}
        if self.accelerator.is_main_process:
            result = self.last_evaluation = self.evaluate_panel()
            low, high = result.interval
            metrics = {
                f"{metric_key_prefix}_success_rate": result.success_rate,
                f"{metric_key_prefix}_interval": [low, high],
                f"{metric_key_prefix}_score": result.mean_score,
                f"{metric_key_prefix}_steps": result.mean_steps,
                f"{metric_key_prefix}_invalid_action_rate": result.invalid_action_rate,
                f"{metric_key_prefix}_episodes": len(result.episodes),
            }
        with self.sampling(_EVALUATION, self.config.eval.seed):
            self._settle()  # the others take part in sampling until the main process has done
        metrics = seam.from_main_process(metrics)
        self._keep_best(metrics, metric_key_prefix)
        with self._evaluation_mode():  # TRL files metrics by the model's mode
            self.log({k: v for k, v in metrics.items() if isinstance(v, float)})
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    @cached_property
    def _held_out(self) -> str:
        return held_out_split(self.config.env, self.config.eval)  # makes an environment to ask it

    def evaluate_panel(self) -> Evaluation:
        """The panel's result with the current weights."""
        config, env = self.config.eval, self.config.env
        options = {k: v for k, v in env.options.items() if k != "split"}
        with self.sampling(_EVALUATION, config.seed, temperature=config.temperature):
            return evaluate(
                self.policy, env.id, split=self._held_out, num_envs=config.num_envs,
                episodes=config.episodes, seed=config.seed, backend=env.backend,
                **self._parts, **options,
            )  # fmt: skip

    def _keep_best(self, metrics: dict[str, Any], prefix: str) -> None:
        rate = metrics[f"{prefix}_success_rate"]
        if self.best is not None and rate <= self.best["success_rate"]:
            return
        step = self.state.global_step
        self.best = {
            "success_rate": rate, "interval": metrics[f"{prefix}_interval"], "step": step,
            "checkpoint": f"checkpoint-{step}" if step else None,  # None: the starting model
        }  # fmt: skip
        if step:
            self.control.should_save = True  # writes best.json too, once the checkpoint is whole
        elif self.accelerator.is_main_process:
            saving.write_json(Path(self.args.output_dir) / "best.json", self.best)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._staging or super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Into a folder of its own that gets its name when all is on disk."""
        run, main = Path(self.args.output_dir), bool(self.args.should_save)
        name = f"checkpoint-{self.state.global_step}"
        wait = self.accelerator.wait_for_everyone
        with saving.staged(run, name, main, wait) as self._staging:
            try:
                super()._save_checkpoint(model, trial)
                if main and self.critic is not None:
                    self.critic.save(self._staging / name)
            finally:
                self._staging = None
        if main:
            if self.best is not None:
                saving.write_json(run / "best.json", self.best)
            best = None if self.best is None else self.best["checkpoint"]
            saving.rotate(run, self.config.run.keep, best)

    def _send_telemetry(self) -> None:
        """Nothing is sent anywhere. (The hub's own switch is read before we could set it.)"""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None: a run folder has its config.yaml, and cards are about models on a hub."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self.best = saving.read_json(Path(self.args.output_dir) / "best.json")
        if self.critic is not None:
            self.critic.load(resume_from_checkpoint)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Tied weights are saved once: that the other name is missing needs no warning."""
        tied = (
            getattr(self.accelerator.unwrap_model(self.model), "all_tied_weights_keys", None) or {}
        )
        missing = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def close(self) -> None:
        """End the group env."""
        self.collector.agent.close()


def _processing(folder: str, model_config: Any) -> Any:
    if vision.is_vision(model_config):
        return vision.load_processor(folder, model_config)
    return AutoTokenizer.from_pretrained(folder, padding_side="left")


def _no_reward(completions: Any, **_: Any) -> list[float]:
    """TRL wants a reward function; rewards come from the environment."""
    raise AssertionError("the rollout is played by the collector")
