"""What a run is made of: one dataclass per concern, read from YAML and the command line.

Every field has a default that works and a help text (``python -m trainers.trl_adapter --help`` prints
them). ``None`` in :class:`LossConfig` and :class:`AdvantageConfig` means "as the algorithm says"
(:mod:`trainers.trl_adapter.presets`).
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of, positive
from trainers.trl_adapter.schema import build, nearest, option, read_yaml


def _between(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise OptionError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")


def _at_least(name: str, value: float | None, low: float) -> None:
    if value is not None and not value >= low:
        raise OptionError(f"{name}: expected a number of at least {low:g}, got {value!r}")


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and which of its tasks."""

    id: str = option("AgentEnv/NumberLine-v0", "environment id; `agent-envs list` shows all")
    split: str = option("train", "split that training draws tasks from")
    tasks: int | None = option(None, "only the first so many tasks of the split; none: all")
    options: dict[str, Any] = option({}, "the environment's own options (`agent-envs info ID`)")
    backend: str = option("inline", "inline, process, ray, or the URL of an env server")

    def __post_init__(self) -> None:
        if self.tasks is not None:
            positive("env.tasks", self.tasks)


@dataclass(frozen=True)
class AgentConfig:
    """How the model sees the environment and is read back."""

    prompt: dict[str, str] | None = option(
        None, "templates `first`, `later`, `turn`, `system`; none: the environment's own"
    )
    memory: dict[str, Any] | None = option(
        None, "`{name: window, size: 3}`, also none, full, token_budget; none: the environment's"
    )
    parser: dict[str, Any] | None = option(
        None, "`{name: tags, reason: ''}`, also json, code; none: the environment's"
    )
    max_prompt_tokens: int | None = option(
        None, "longer prompts lose their oldest turns, whole; none: what the context leaves"
    )
    history_images: bool = option(True, "show the pictures of past turns too, or only their text")
    max_images: int | None = option(
        None, "pictures in a prompt; with more, the oldest turns go, whole; none: as many as fit"
    )
    max_pixels: int | None = option(None, "pixels of all pictures of a prompt together")
    on_length: str = option(
        "invalid", "a reply cut at the token limit without an action: invalid or truncate"
    )
    prefilled: str = option("", "text that the chat template puts in front of completions")
    chat_template_kwargs: dict[str, Any] = option({}, "passed to the tokenizer's chat template")

    def __post_init__(self) -> None:
        if self.max_prompt_tokens is not None:
            positive("agent.max_prompt_tokens", self.max_prompt_tokens)


@dataclass(frozen=True)
class ModelConfig:
    """The policy."""

    path: str = option(
        "tiny",
        "a folder or hub id of a Hugging Face model or PEFT adapter, `smollm2`, or built here: `tiny`, or "
        "`tiny_vl`, which reads pictures",
    )
    dtype: str = option(
        "auto",
        "of the weights: float32, bfloat16, float16; auto: float32 where they are trained, below LoRA "
        "bfloat16 if the device has it",
    )
    attn_implementation: str = option("sdpa", "sdpa, eager, flash_attention_2 ...")
    quantization: str | None = option(None, "4bit or 8bit (bitsandbytes, GPU): QLoRA; none: off")
    gradient_checkpointing: bool = option(
        False, "compute activations twice instead of keeping them: less memory, a third slower"
    )
    hidden_size: int = option(128, "of `tiny` and `tiny_vl`")
    layers: int = option(3, "of `tiny` and `tiny_vl`")
    context: int = option(
        1024, "of `tiny` and `tiny_vl`: longest prompt and reply together, in tokens"
    )

    def __post_init__(self) -> None:
        one_of("model.dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        one_of("model.quantization", self.quantization, (None, "4bit", "8bit"))
        for name in ("hidden_size", "layers", "context"):
            positive(f"model.{name}", getattr(self, name))


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters (peft): the model's own weights stay as they are."""

    rank: int = option(0, "of the adapter's matrices; 0: no adapter, all weights are trained")
    alpha: int = option(32, "the adapter counts alpha / rank times")
    dropout: float = option(0.0, "inside the adapter, while it learns (never while it plays)")
    targets: list[str] = option(
        ["all-linear"], "names of linear modules such as q_proj; all-linear: all but the head"
    )

    def __post_init__(self) -> None:
        _at_least("lora.rank", self.rank, 0)
        if not 0 <= self.dropout < 1:
            raise OptionError(f"lora.dropout: expected 0 to below 1, got {self.dropout!r}")
        if not self.targets:
            raise OptionError("lora.targets: name a module at least, or all-linear")


@dataclass(frozen=True)
class WarmStartConfig:
    """Supervised steps on the scripted expert's decisions before reinforcement learning begins."""

    episodes: int = option(0, "expert episodes to learn from; 0: none")
    random: float = option(
        0.0, "share of decisions left to chance: above 0 the model learns the form, not the skill"
    )
    teach: str = option(
        "played",
        "of decisions left to chance: the chance (played), or what the expert would have done there "
        "(expert), which teaches to recover from mistakes",
    )
    epochs: int = option(3, "passes over them")
    learning_rate: float = option(2e-3, "of AdamW")
    batch_size: int = option(16, "decisions per optimizer step")
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm")

    def __post_init__(self) -> None:
        _at_least("warm_start.episodes", self.episodes, 0)
        if not 0 <= self.random <= 1:
            raise OptionError(f"warm_start.random: expected 0 to 1, got {self.random!r}")
        one_of("warm_start.teach", self.teach, ("played", "expert"))
        for name in ("epochs", "batch_size"):
            positive(f"warm_start.{name}", getattr(self, name))
        for name in ("learning_rate", "max_grad_norm"):
            _at_least(f"warm_start.{name}", getattr(self, name), 0)


@dataclass(frozen=True)
class RolloutConfig:
    """How episodes are played. One update learns from groups x group_size episodes."""

    groups: int = option(4, "tasks per rollout; replicas of a group start from the same state")
    group_size: int = option(4, "episodes per task")
    temperature: float = option(1.0, "of sampling")
    top_p: float = option(1.0, "nucleus sampling; 1: off")
    top_k: int = option(0, "sample among the k likeliest tokens; 0: all")
    max_completion_tokens: int = option(16, "longest reply, in tokens")
    rows_per_generation: int = option(256, "prompts that are generated for at the same time")
    dynamic: bool = option(False, "DAPO's dynamic sampling: replay groups whose returns are equal")
    max_rounds: int = option(4, "dynamic sampling: rounds in all, the first one included")
    tolerance: float = option(1e-6, "dynamic sampling: smallest spread of returns that teaches")

    def __post_init__(self) -> None:
        for name in ("groups", "group_size", "max_completion_tokens", "rows_per_generation",
                     "max_rounds"):  # fmt: skip
            positive(f"rollout.{name}", getattr(self, name))
        _between("rollout.temperature", self.temperature, 1e-3, 1e3)
        _between("rollout.top_p", self.top_p, 1e-6, 1)
        _at_least("rollout.top_k", self.top_k, 0)
        _at_least("rollout.tolerance", self.tolerance, 0)


@dataclass(frozen=True)
class AdvantageConfig:
    """From rewards to advantages; docs/algorithms has the equations."""

    norm: str | None = option(None, "divide by the group's deviation: mean_std, or not: mean")
    baseline_over: str = option("trajectories", "count an episode once, or once per step: steps")
    singleton: str = option("zero", "advantage of a group of one: zero, or the raw score")
    invalid_penalty: float = option(0.1, "what an invalid action costs")
    penalise: str = option("format", "which verdict counts as invalid: format, action (the env's)")
    penalty_in_return: bool = option(False, "let the penalty reach earlier steps of the episode")
    gamma: float | None = option(
        None, "discount: per env step for GiGPO, per token for PPO and REINFORCE++"
    )
    step_weight: float = option(1.0, "GiGPO: weight of the step advantage")
    similarity: float | None = option(None, "GiGPO: merge states at least so similar (0 to 1)")
    lam: float = option(1.0, "PPO: lambda of GAE")
    chain: str = option("step", "PPO: GAE inside each reply (step) or along the episode")
    whiten: bool = option(True, "PPO: whiten advantages over the batch")
    group_baseline: bool = option(False, "REINFORCE++: subtract the group's mean first")
    kl_in_reward: float = option(0.0, "REINFORCE++, PPO: KL penalty per token in the reward")

    def __post_init__(self) -> None:
        one_of("advantage.norm", self.norm, (None, "mean", "mean_std"))
        one_of("advantage.baseline_over", self.baseline_over, ("trajectories", "steps"))
        one_of("advantage.singleton", self.singleton, ("zero", "raw"))
        one_of("advantage.penalise", self.penalise, ("format", "action"))
        one_of("advantage.chain", self.chain, ("step", "episode"))
        _between("advantage.gamma", self.gamma, 0, 1)
        _between("advantage.lam", self.lam, 0, 1)
        if self.similarity is not None and not 0 < self.similarity < 1:
            raise OptionError(
                f"advantage.similarity: expected between 0 and 1, got {self.similarity}"
            )


@dataclass(frozen=True)
class LossConfig:
    """The policy loss; names as in TRL's GRPOConfig where it has them."""

    loss_type: str | None = option(
        None, "dapo: mean over all tokens of the rollout; grpo: over replies; more: TRL's docs"
    )
    importance: str | None = option(None, "probability ratios per token, or per sequence (GSPO)")
    clip_low: float | None = option(None, "the ratio is clipped at 1 - clip_low")
    clip_high: float | None = option(None, "and at 1 + clip_high")
    dual_clip: float | None = option(3.0, "bound of the ratio where the advantage is negative")
    kl_coef: float = option(0.0, "weight of the k3 KL to the starting model")
    entropy_coef: float = option(0.0, "weight of the entropy bonus")
    mask_truncated: bool = option(False, "leave replies cut at the token limit out of the loss")
    overlong_buffer: int = option(
        0, "DAPO's soft overlong penalty: tokens before the limit in which it grows; 0: off"
    )
    overlong_penalty: float = option(1.0, "its size at the limit")

    def __post_init__(self) -> None:
        one_of("loss.importance", self.importance, (None, "token", "sequence"))
        for name in ("clip_low", "clip_high", "dual_clip", "kl_coef", "overlong_buffer"):
            _at_least(f"loss.{name}", getattr(self, name), 0)


@dataclass(frozen=True)
class CriticConfig:
    """PPO's value model: a token classifier with one label, from the policy's folder."""

    learning_rate: float = option(1e-5, "of its own AdamW")
    weight_decay: float = option(0.01, "of its own AdamW")
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm")
    share_trunk: bool = option(
        False,
        "with LoRA: an adapter and a head on the policy's own frozen weights, not a second model",
    )
    value_clip: float | None = option(0.5, "how far a value may move per update; none: no bound")

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay", "max_grad_norm", "value_clip"):
            _at_least(f"critic.{name}", getattr(self, name), 0)


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and how a rollout is cut up for it."""

    learning_rate: float = option(1e-6, "of AdamW")
    weight_decay: float = option(0.01, "of AdamW")
    max_grad_norm: float = option(1.0, "gradients are scaled down to this norm")
    schedule: str = option("constant", "learning rate schedule, as transformers names them")
    warmup_steps: int = option(0, "optimizer steps in which the learning rate rises")
    mini_batches: int = option(1, "optimizer steps per pass over a rollout")
    iterations: int = option(1, "passes over a rollout")
    micro_batch_tokens: int = option(
        16384, "tokens per forward pass; bounds memory, not the result"
    )

    def __post_init__(self) -> None:
        for name in ("mini_batches", "iterations", "micro_batch_tokens"):
            positive(f"optim.{name}", getattr(self, name))
        for name in ("learning_rate", "weight_decay", "max_grad_norm", "warmup_steps"):
            _at_least(f"optim.{name}", getattr(self, name), 0)


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation on a panel: every task exactly once."""

    every: int = option(10, "updates between evaluations; 0: never")
    split: str | None = option(
        None, "held-out split; none: the environment's first one besides env.split"
    )
    episodes: int | None = option(64, "the first so many tasks; none: all")
    temperature: float = option(0.0, "0: the likeliest token")
    num_envs: int = option(64, "tasks in play at the same time")
    seed: int = option(0, "for environments with randomness of their own, and for sampling")
    at_start: bool = option(True, "evaluate before the first update too")

    def __post_init__(self) -> None:
        _at_least("eval.every", self.every, 0)
        positive("eval.num_envs", self.num_envs)
        if self.episodes is not None:
            positive("eval.episodes", self.episodes)
        _between("eval.temperature", self.temperature, 0, 1e3)
        _at_least("eval.seed", self.seed, 0)


@dataclass(frozen=True)
class RunConfig:
    """Length of the run, what it writes, and where."""

    updates: int = option(50, "rollouts to learn from")
    output_dir: str = option("runs/agent", "folder for checkpoints, metrics.jsonl and logs")
    seed: int = option(0, "decides tasks, samples and initial weights")
    save_every: int = option(10, "updates between checkpoints; 0: only at the end")
    keep: int = option(2, "checkpoints to keep besides the best one")
    log_to: list[str] = option(["tensorboard"], "tensorboard, trackio, wandb; [] for none")
    trajectories: int = option(10, "updates between samples of trajectories; 0: none")
    resume: str | None = option(None, "`latest`, or a checkpoint folder of this run")
    progress: bool = option(True, "show a progress bar")
    ignore_memory: bool = option(False, "start even where the weights exceed this machine's memory")

    def __post_init__(self) -> None:
        positive("run.updates", self.updates)
        positive("run.keep", self.keep)
        _at_least("run.save_every", self.save_every, 0)
        _at_least("run.trajectories", self.trajectories, 0)
        _between("run.seed", self.seed, 0, 2**32 - 1)  # NumPy's and transformers' range


@dataclass(frozen=True)
class TrainConfig:
    """A whole run."""

    algorithm: str = option("gigpo", "gigpo, grpo, ppo, dapo, gspo, rloo or reinforce_pp")
    env: EnvConfig = field(default_factory=EnvConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)
    trl: dict[str, Any] = option({}, "further fields of TRL's GRPOConfig, by their names there")

    @property
    def steps_per_rollout(self) -> int:
        """Optimizer steps between two rollouts."""
        return self.optim.mini_batches * self.optim.iterations


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain data, as it stands in a run folder's ``config.yaml``."""
    return asdict(config)


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """A config from nested plain data; OptionError names an unknown field and the nearest ones."""
    return typing.cast("TrainConfig", build(TrainConfig, values))


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """Read a YAML file and put ``overrides`` (dotted names or unique field names) on top.

    ``base: other.yaml`` (relative to the file) is read first; the file's own fields win.
    """
    return with_overrides(from_dict(read_yaml(Path(path))), overrides or {})


def with_overrides(config: TrainConfig, overrides: Mapping[str, Any]) -> TrainConfig:
    """The config with some fields replaced, by ``section.field`` or a unique ``field``."""
    values = to_dict(config)
    for name, value in overrides.items():
        *sections, leaf = full_name(name).split(".")
        place = values
        for section in sections:
            if place.get(section) is None:
                place[section] = {}
            place = place[section]
        place[leaf] = value
    return from_dict(values)


def full_name(name: str) -> str:
    """``learning_rate`` -> ``optim.learning_rate``; dotted names must exist, except inside dicts."""
    known = {path: kind for path, kind, _ in leaves()}
    if name in known or any(name.startswith(f"{path}.") and "dict" in str(kind)
                            for path, kind in known.items()):  # fmt: skip
        return name
    ends = [path for path in known if path.rpartition(".")[2] == name]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise OptionError(f"{name!r} is a field of several sections: {', '.join(ends)}")
    raise OptionError(f"unknown field {name!r}; {nearest(name, list(known))}")


def leaves(kind: Any = TrainConfig, prefix: str = "") -> Iterator[tuple[str, Any, Field[Any]]]:
    """(dotted name, type, field) of every field that holds a value."""
    hints = typing.get_type_hints(kind)
    for item in fields(kind):
        if is_dataclass(hints[item.name]):
            yield from leaves(hints[item.name], f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", hints[item.name], item
