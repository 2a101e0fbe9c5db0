"""The policy's folder: built here (``tiny``), warm-started, or the user's; and what must fit into it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoConfig, AutoTokenizer

from agent_envs.agent import ExpertPolicy, Prompt, RandomPolicy, Rollout, View
from agent_envs.core import OptionError
from agent_envs.core.errors import PolicyError
from agent_envs.core.seeding import keyed_seed
from trainers.trl_adapter import smollm2, tiny_vl
from trainers.trl_adapter.checkpoint import staged
from trainers.trl_adapter.collect import agent_parts, make_agent, profile_of
from trainers.trl_adapter.config import TrainConfig
from trainers.trl_adapter.loading import (
    ADAPTER,
    check_loading,
    check_projections,
    check_targets,
    is_adapter,
)
from trainers.trl_adapter.shapes import configuration_of
from trainers.trl_adapter.tiny import HEADS, build_tiny, check_sizes
from trainers.trl_adapter.vision import check_pictures, check_vision, is_vision, load_processor

logger = logging.getLogger("trainers.trl_adapter")

_VOCABULARY, _EXPERT, _NOISE = 0x70CA, 0xE5E4, 0x2015E
_TASKS_FOR_WORDS = 256
BUILT_HERE = {"tiny": build_tiny, tiny_vl.NAME: tiny_vl.build_tiny_vl}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_NOT_NEEDED = ["*.bin", "*.pth", "*.onnx", "*.gguf", "*.msgpack", "*.h5", "original/*"]


def context_of(config: Any) -> int | None:
    """Longest sequence of a model's configuration, where it says so."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def check_context(config: TrainConfig, context: int | None) -> int:
    """Longest prompt in tokens; OptionError with the numbers where prompt and reply do not fit.

    Args:
        context: the model's, where it says so.
    """
    reply = config.rollout.max_completion_tokens
    prompt = config.agent.max_prompt_tokens
    if context is None:
        if prompt is None:
            raise OptionError("the model does not say its context: set agent.max_prompt_tokens")
        return prompt
    if reply >= context:
        raise OptionError(
            f"replies of {reply} tokens (rollout.max_completion_tokens) and a prompt of one at least make "
            f"{reply + 1}, more than the model's context of {context}"
        )
    prompt = context - reply if prompt is None else prompt
    if prompt + reply > context:
        raise OptionError(
            f"prompts of up to {prompt} tokens (agent.max_prompt_tokens) and replies of {reply} "
            f"(rollout.max_completion_tokens) make {prompt + reply}, more than the model's context "
            f"of {context}"
        )
    return prompt


def check_model(config: TrainConfig) -> int:
    """:func:`check_context` before anything is built; OptionError for sizes that make no model."""
    model = config.model
    check_loading(model, config.lora)
    if model.path == smollm2.NAME:
        smollm2.check_smollm2()
        check_projections(config.lora, smollm2.NAME)
        return check_context(config, smollm2.CONTEXT)
    if model.path == tiny_vl.NAME:
        check_vision(config)
        tiny_vl.check_vision_sizes(model.hidden_size, model.layers, model.context)
        return check_context(config, model.context)
    if model.path != "tiny":
        folder = model_folder(config, Path())
        described = configuration(folder)
        if is_vision(described):
            check_vision(config)
            load_processor(folder, described)
        found = check_context(config, context_of(described))
        if config.lora.rank and not is_adapter(folder):
            check_targets(folder, config.lora)
        return found
    check_sizes(model.hidden_size, model.layers, HEADS, model.context)
    check_projections(config.lora, model.path)
    return check_context(config, model.context)


def check_environment(config: TrainConfig, max_prompt_tokens: int) -> None:
    """Make the environment once, with its prompts, memory and parser; their errors are for the user."""
    parts = agent_parts(config.env.id, config.agent, _Letters(), max_prompt_tokens)
    agent = make_agent(config.env, 1, 1, parts)
    try:
        space = agent.group.single_observation_space
        check_pictures(space, reads_pictures(config), config.model.path)
    finally:
        agent.close()


def reads_pictures(config: TrainConfig) -> bool:
    """Is the policy a vision-language model."""
    if config.model.path in (*BUILT_HERE, smollm2.NAME):
        return config.model.path == tiny_vl.NAME
    return is_vision(configuration(config.model.path))


def model_folder(config: TrainConfig, run: Path) -> Path:
    """The folder with the policy's weights; ``tiny`` and ``tiny_vl`` are built inside the run's folder.

    Raises:
        OptionError: the path is no model folder.
    """
    if build := BUILT_HERE.get(config.model.path):
        folder = run / config.model.path
        if not (folder / "config.json").is_file():
            with staged(run, folder.name) as staging:
                build(
                    vocabulary_texts(config), staging / folder.name,
                    hidden_size=config.model.hidden_size, layers=config.model.layers,
                    context=config.model.context, seed=config.run.seed,
                )  # fmt: skip
        return folder
    if config.model.path == smollm2.NAME:
        return smollm2.smollm2_folder()
    folder = Path(config.model.path)
    if (folder / "config.json").is_file() or is_adapter(folder):
        return folder
    if is_hub_id(config.model.path):
        return _download(config.model.path)
    raise OptionError(
        f"model.path {config.model.path!r} is no folder with a Hugging Face model (no "
        "config.json there) and no hub id (owner/name); `tiny` builds a small model"
    )


def _download(name: str) -> Path:
    """The folder of a hub's model; OptionError where the hub has none, or cannot be reached."""
    try:
        return Path(snapshot_download(name, ignore_patterns=_NOT_NEEDED))
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(
            f"model.path {name!r}: it is not on this machine, and the hub did not give it ({reason}); "
            "a folder with the model works without a hub"
        ) from error


def is_hub_id(path: str | Path) -> bool:
    """Does ``path`` name a model of a hub (``owner/name``) rather than a folder."""
    return not Path(path).exists() and _HUB_ID.fullmatch(str(path)) is not None


def configuration(path: str | Path) -> Any:
    """The configuration of a model folder, an adapter's (that of the model below it) or a hub id.

    Raises:
        OptionError: a hub id that nobody here knows.
    """
    if is_adapter(path):
        path = _below(Path(path) / ADAPTER)
    return configuration_of(str(path)) if is_hub_id(path) else AutoConfig.from_pretrained(path)


def _below(file: Path) -> str:
    """The model that an adapter was trained on."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"model.path: {file} is no JSON: {error}") from None
    name = told.get("base_model_name_or_path") if isinstance(told, dict) else None
    if not isinstance(name, str) or not name:
        raise OptionError(
            f"model.path: {file} does not name the adapter's model (base_model_name_or_path)"
        )
    return name


class _Letters:
    """Counts characters: a stand-in for the tokenizer that is about to be made."""

    @staticmethod
    def encode(text: str, add_special_tokens: bool = False) -> range:
        return range(len(text))

    @staticmethod
    def apply_chat_template(chats: Any, **_: Any) -> list[list[int]]:
        return [[] for _ in chats]


def vocabulary_texts(config: TrainConfig) -> list[str]:
    """What an agent reads and writes here: prompts and replies of experts and of chance."""
    texts: list[str] = []
    parts = agent_parts(config.env.id, config.agent, _Letters(), 10**9)
    agent = make_agent(config.env, _TASKS_FOR_WORDS, 1, parts)
    try:
        has_expert = agent.group.profile.has_expert
        for policy in (ExpertPolicy(),) * has_expert + (RandomPolicy(0),):
            try:
                rollout = agent.rollout(policy, seed=keyed_seed(_VOCABULARY, config.run.seed))
            except PolicyError:  # chance where no actions are listed: the expert's words are enough
                if not has_expert:
                    raise
                continue
            for step in rollout.steps:
                texts += [step.prompt.text, step.completion.text]
    finally:
        agent.close()
    return texts


def expert_rollout(config: TrainConfig, folder: Path, episodes: int) -> Rollout:
    """Episodes of the scripted expert on training tasks, with the prompts that the model will see."""
    env = config.env
    if not profile_of(env.id).has_expert:
        raise OptionError(f"{env.id} has no scripted expert to start from: warm_start.episodes: 0")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    longest = check_context(config, context_of(configuration(folder)))
    parts = agent_parts(env.id, config.agent, tokenizer, longest)
    agent = make_agent(env, episodes, 1, parts)
    seeds = [keyed_seed(_EXPERT, config.run.seed, i) for i in range(episodes)]
    options: dict[str, Any] = {}
    if env.tasks is not None:
        options["task_index"] = [i % env.tasks for i in range(episodes)]
    try:
        policy = _Noisy(config.warm_start.random, config.run.seed)
        rollout: Rollout = agent.rollout(policy, seed=seeds, options=options)
    finally:
        agent.close()
    return rollout


class _Noisy:
    """The expert, except that a share of the decisions is left to chance."""

    needs_expert = True

    def __init__(self, share: float, seed: int) -> None:
        self._share, self._seed = share, seed
        self._expert, self._random = ExpertPolicy(), RandomPolicy(seed)

    def act(self, prompts: Sequence[Prompt]) -> list[str]:
        return [self._choose(p.view).act([p])[0] for p in prompts]

    def _choose(self, view: View) -> ExpertPolicy | RandomPolicy:
        draw = keyed_seed(_NOISE, self._seed, view.group_seed, view.member, view.step)
        return self._random if draw % 10_000 < self._share * 10_000 else self._expert


def won_steps(rollout: Rollout) -> Iterable[Any]:
    """Steps of the episodes that were won."""
    for steps in rollout.trajectories().values():
        if steps and steps[-1].info.get("won") and steps[-1].error is None:
            yield from steps
