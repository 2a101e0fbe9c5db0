"""Rollouts for training: seeds, dynamic sampling, and what is counted about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

import agent_envs
from agent_envs.agent import AgentGroup, Rollout, Step, Turn
from agent_envs.agent.memory import memory_of
from agent_envs.agent.parsing import parser_of
from agent_envs.agent.prompt import TemplatePrompt
from agent_envs.core import OptionError
from agent_envs.core.errors import made
from agent_envs.core.profile import Profile, PromptSpec, Spec
from agent_envs.core.seeding import keyed_seed
from agent_envs.registration import spec_of
from trainers.gigpo import episode_returns
from trainers.trl_adapter.advantages import dapo_filter
from trainers.trl_adapter.config import AgentConfig, EnvConfig, RolloutConfig
from trainers.trl_adapter.policy import TextLength, encode_chats
from trainers.trl_adapter.samples import Reduce, Samples, alone, samples_of

_ROLLOUT = 0x5011  # keeps rollout seeds apart from all other uses of the run's seed


def profile_of(env_id: str) -> Profile:
    """The profile of an environment, by id or ``module:id``.

    Raises:
        gymnasium.error.Error: no such id; names similar ones.
        ImportError: no such module.
        OptionError: an environment that is none of the hub's.
    """
    known = spec_of(env_id).id
    if known not in agent_envs.registered_ids():
        raise OptionError(
            f"env.id: {env_id} is no agent environment; valid: {', '.join(agent_envs.registered_ids())}"
        )
    return agent_envs.env_class(known).profile


def agent_parts(
    env_id: str,
    agent: AgentConfig,
    tokenizer: Any,
    max_prompt_tokens: int,
    image_size: Callable[[Any], int] | None = None,
) -> dict[str, Any]:
    """Prompt builder, memory and parser for :class:`AgentGroup` and ``evaluate``.

    ``max_prompt_tokens`` counts the whole prompt; what the chat template adds is taken off here.
    ``image_size``: what a picture costs in tokens.
    """
    profile = profile_of(env_id)
    spec = profile.prompt if agent.prompt is None else prompt_of(agent.prompt)
    empty = [{"role": "user", "content": ""}]
    if spec.system:
        empty.insert(0, {"role": "system", "content": ""})
    (frame,) = encode_chats(tokenizer, [empty], agent.chat_template_kwargs)
    limit = max(1, max_prompt_tokens - len(frame) - 2)  # 2: tokens may join at the seams
    # beside pictures a bound of a text's tokens is not enough
    exact = partial(tokenizer.encode, add_special_tokens=False)
    return {
        "prompt": TemplatePrompt(
            spec,
            max_prompt_tokens=limit,
            history_images=agent.history_images,
            tokenizer=exact if image_size else TextLength(tokenizer, limit),
            image_size=image_size,
            max_images=agent.max_images,
            max_pixels=agent.max_pixels,
        ),
        "memory": memory_of(_spec(agent.memory, profile.memory)),
        "parser": parser_of(_spec(agent.parser, profile.parser)),
        "prefilled": agent.prefilled,
        "on_length": agent.on_length,
    }


def prompt_of(templates: dict[str, Any]) -> PromptSpec:
    """Templates by name; OptionError for a name that there is not, or what is no text."""
    for name, text in templates.items():
        if not isinstance(text, str):
            raise OptionError(f"agent.prompt.{name}: expected text, got {text!r:.60}")
    names = ", ".join(item.name for item in fields(PromptSpec))
    return made(f"agent.prompt (valid: {names})", PromptSpec, templates)


def _spec(given: dict[str, Any] | None, default: Spec) -> Spec:
    if given is None:
        return default
    options = {key: value for key, value in given.items() if key != "name"}
    return Spec(given.get("name", default.name), options)


def make_agent(env: EnvConfig, groups: int, group_size: int, parts: dict[str, Any]) -> AgentGroup:
    """The group env that training plays on, with its prompts and parser."""
    group = agent_envs.make_group(
        env.id, groups, group_size, backend=env.backend, split=env.split, **env.options
    )
    return AgentGroup(group, **parts)


@dataclass(frozen=True)
class Collected:
    """One rollout's samples and figures."""

    samples: Samples
    rollout: Rollout
    figures: dict[str, float] = field(default_factory=dict)


class Collector:
    """Plays rollouts; which tasks they are depends on the seed and the rollout's number only.

    Args:
        agent: groups of this process.
        policy: answers the prompts.
        config: of the rollout.
        seed: the run's.
        tasks: only the first so many tasks of the split.
        first_group: number of this process's first group among those of all processes.
        reduce: sums over processes.
        settle: called when this process has played, before anything is summed.
    """

    def __init__(
        self,
        agent: AgentGroup,
        policy: Any,
        config: RolloutConfig,
        *,
        seed: int,
        tasks: int | None = None,
        first_group: int = 0,
        reduce: Reduce = alone,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.agent, self.policy, self.config = agent, policy, config
        self._seed, self._tasks, self._first, self._reduce = seed, tasks, first_group, reduce
        self._settle = settle

    def collect(
        self, number: int, on_turn: Callable[[Turn], None] = lambda turn: None
    ) -> Collected:
        """Rollout ``number``. Dynamic sampling plays groups with equal returns again, on new tasks.

        At most ``max_rounds`` rounds; groups that stay uninformative take no part in the update, so
        the loss per token does not depend on how many there are. All processes play as many rounds.
        """
        groups = list(range(self.agent.group.num_groups))
        rounds = self.config.max_rounds if self.config.dynamic else 1
        kept: dict[int, Rollout] = {}
        for again in range(rounds):
            open_groups = [g for g in groups if g not in kept]
            rollout = self._play(number, again, open_groups, on_turn)
            self._settle()
            parts = split_by_group(rollout, open_groups, self.agent.group.group_size)
            last = again == rounds - 1  # keeps what there is
            informative = open_groups if last else self._informative(_samples(rollout))
            kept.update({g: parts[g] for g in open_groups if g in informative})
            # where nothing is missing, the other processes play on and this one idles along
            if self._reduce(np.array([float(len(groups) - len(kept))]))[0] == 0:
                break
        rollout = joined(kept[g] for g in groups)
        samples = _samples(rollout)
        taught = self._informative(samples)
        if self.config.dynamic:
            samples = replace(samples, active=samples.active & np.isin(samples.group, list(taught)))
        return Collected(samples, rollout, self._figures(samples, rollout, taught, again + 1))

    def _play(
        self, number: int, again: int, groups: list[int], on_turn: Callable[[Turn], None]
    ) -> Rollout:
        if not groups:
            return Rollout([], {}, {})
        every = range(self.agent.group.num_groups)
        seeds = [keyed_seed(_ROLLOUT, self._seed, number, self._first + g, again) for g in every]
        chosen = np.isin(
            np.arange(self.agent.group.num_envs) // self.agent.group.group_size, groups
        )
        options: dict[str, Any] = {"reset_mask": chosen}
        if self._tasks is not None:
            options["task_index"] = [seed % self._tasks for seed in seeds]
        rollout: Rollout = self.agent.rollout(
            self.policy, seed=seeds, options=options, on_turn=on_turn
        )
        failures = {i: text for i, text in rollout.failures.items() if chosen[i]}
        return Rollout(rollout.steps, rollout.starts, failures)

    def _informative(self, samples: Samples) -> set[int]:
        """Groups whose episode returns differ by more than the tolerance."""
        if not len(samples):
            return set()
        keep = dapo_filter(
            episode_returns(samples.reward, samples.trajectory),
            samples.group,
            samples.trajectory,
            tolerance=self.config.tolerance,
        )
        return set(samples.group[keep].tolist())

    def _figures(
        self, samples: Samples, rollout: Rollout, taught: set[int], rounds: int
    ) -> dict[str, float]:
        """Means over all processes; counts are sums."""
        last = {step.trajectory: step for step in sorted(rollout.steps, key=lambda s: s.step)}
        lengths = np.bincount(np.unique(samples.trajectory, return_inverse=True)[1])
        never_began = rollout.failures.keys() - {s.replica for s in rollout.starts.values()}
        sums = {
            "episodes": float(len(rollout.starts) + len(never_began)),
            "won": float(sum(bool(step.info.get("won")) for step in last.values())),
            "return": float(np.nansum(samples.reward)),
            "steps": float(len(samples)),
            "invalid_format": float((~samples.format_valid).sum()),
            "invalid_action": float((~samples.action_valid).sum()),
            "cut": float(samples.cut.sum()),
            "failed_episodes": float(len(rollout.failures)),  # one episode per replica
            "masked_samples": float((~samples.active).sum()),
            "turns_omitted": float(sum(step.prompt.omitted for step in rollout.steps)),
            "groups": float(self.agent.group.num_groups),
            "groups_kept": float(len(taught)),
        }
        names = list(sums)
        together = self._reduce(np.array([sums[name] for name in names])).tolist()
        total = dict(zip(names, together, strict=True))
        episodes, steps = max(total["episodes"], 1.0), max(total["steps"], 1.0)
        return {
            "success_rate": total["won"] / episodes,
            "return_mean": total["return"] / episodes,
            "episode_steps": total["steps"] / episodes,
            "episode_steps_max": float(lengths.max(initial=0)),
            "invalid_format_rate": total["invalid_format"] / steps,
            "invalid_action_rate": total["invalid_action"] / steps,
            "cut_rate": total["cut"] / steps,
            "groups_kept": total["groups_kept"] / max(total["groups"], 1.0),
            "rounds": float(rounds),
            "samples": total["steps"],
            "failed_episodes": total["failed_episodes"],
            "masked_samples": total["masked_samples"],
            "turns_omitted": total["turns_omitted"],
        }


def _samples(rollout: Rollout) -> Samples:
    return samples_of(rollout.steps, failed_trajectories(rollout))


def failed_trajectories(rollout: Rollout) -> set[int]:
    """Trajectories that an error closed; their returns are unknown."""
    replicas = set(rollout.failures)
    return {t for t, start in rollout.starts.items() if start.replica in replicas}


def split_by_group(rollout: Rollout, groups: Iterable[int], group_size: int) -> dict[int, Rollout]:
    """One rollout per group of ``groups``; a group of which no replica could start has no steps."""
    return {
        g: Rollout(
            [step for step in rollout.steps if step.group == g],
            {t: start for t, start in rollout.starts.items() if start.group == g},
            {i: text for i, text in rollout.failures.items() if i // group_size == g},
        )
        for g in groups
    }


def joined(parts: Iterable[Rollout]) -> Rollout:
    """Rollouts of different groups as one."""
    steps: list[Step] = []
    starts: dict[int, Any] = {}
    failures: dict[int, str] = {}
    for part in parts:
        steps += part.steps
        starts.update(part.starts)
        failures.update(part.failures)
    return Rollout(steps, starts, failures)
