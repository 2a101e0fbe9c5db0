"""The agent's side of a group env: histories, prompts, parsing, one record per decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from agent_envs.agent.memory import Memory, memory_of
from agent_envs.agent.parsing import ActionParser, ParsedAction, parser_of
from agent_envs.agent.prompt import PromptBuilder, TemplatePrompt
from agent_envs.agent.records import Completion, Prompt, Start, Step, View
from agent_envs.core.actions import Actions
from agent_envs.core.errors import OptionError, PromptOverflow, StalePrompt
from agent_envs.core.profile import PromptSpec
from agent_envs.group.protocol import Result
from agent_envs.group.vector import GroupVectorEnv

logger = logging.getLogger("agent_envs.agent")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one call of ``step`` brought: the records, and the prompts that follow from them."""

    prompts: list[Prompt]
    steps: list[Step]


class AgentGroup:
    """Turns a group env into prompts and completions into actions.

    Only active replicas are asked. Any subset of the waiting prompts may be answered at a time, so
    asynchronous policies never wait for the slowest. Records do not depend on the order of answers.

    Args:
        group: the group env; it belongs to this object from now on.
        prompt: a builder, or templates; default the env profile's.
        memory: default the builder's own, else the profile's.
        parser: default the profile's.
        expert: put the scripted expert's action into every view.
        prefilled: text that the chat template puts in front of completions, such as ``<think>``.
        on_length: what becomes of a reply that was cut at the token limit and holds no action:
            ``truncate`` closes the replica (no format fault), ``invalid`` counts it as one.
    """

    def __init__(
        self,
        group: GroupVectorEnv,
        *,
        memory: Memory | None = None,
        prompt: PromptBuilder | PromptSpec | None = None,
        parser: ActionParser | None = None,
        expert: bool = False,
        prefilled: str = "",
        on_length: str = "truncate",
    ) -> None:
        profile = group.profile
        if isinstance(prompt, PromptSpec):
            prompt = TemplatePrompt(prompt)
        if on_length not in ("truncate", "invalid"):
            raise OptionError(f"unknown on_length {on_length!r}; valid: truncate, invalid")
        self.group = group
        self.builder: PromptBuilder = prompt or TemplatePrompt(profile.prompt)
        self.memory: Memory = (
            memory or getattr(self.builder, "memory", None) or memory_of(profile.memory)
        )
        self.parser: ActionParser = parser or parser_of(profile.parser)
        self.expert = expert
        self._prefilled, self._on_length = prefilled, on_length
        self._format = self.parser.format
        self._hidden = profile.hidden_actions
        self._invalid_action = profile.invalid_action
        self._past: list[list[Step]] = [[] for _ in range(group.num_envs)]
        self._trajectory = [-1] * group.num_envs
        self._waiting: dict[int, Prompt] = {}
        self._new_trajectory = count()
        self._unexecuted: set[int] = set()  # replicas whose last step was not the env's
        self.starts: dict[int, Start] = {}  # of the episodes since each replica's last reset
        self.failures: dict[int, str] = {}

    @property
    def waiting(self) -> list[Prompt]:
        """Prompts that wait for an answer, by replica."""
        return [self._waiting[i] for i in sorted(self._waiting)]

    def past(self, replica: int) -> Sequence[Step]:
        """The steps of the replica's current episode, oldest first."""
        return self._past[replica]

    def reset(
        self, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> list[Prompt]:
        """Start new episodes; returns the prompts of the replicas that were started."""
        group, size = self.group, self.group.group_size
        mask = (options or {}).get("reset_mask")
        group.reset(seed=seed, options=options)
        started = [i for i in range(group.num_envs) if mask is None or mask[i]]
        # forks stay inside a group and groups are reset whole: no episode in play descends from these. A
        # new dict, since rollouts were made of the old one
        gone = set(started)
        self.starts = {t: s for t, s in self.starts.items() if s.replica not in gone}
        shared = {k: v for k, v in (options or {}).items() if k not in ("reset_mask", "task_index")}
        for i in started:
            g = i // size
            index = group.task_indices[g]
            start = shared if index is None else {**shared, "task_index": index}
            self._begin(i, Start(next(self._new_trajectory), g, i, group.group_seeds[g], start), [])
        return self._prompts(started)

    def fork(self, source: int, targets: Iterable[int]) -> list[Prompt]:
        """Copy the env state and history of ``source`` to ``targets`` (same group).

        Forked replicas get new trajectory ids; returns the targets' prompts.
        """
        targets = list(targets)
        self.group.fork(source, targets)
        past, parent = self._past[source], self.starts[self._trajectory[source]]
        if source in self._unexecuted:
            past = past[:-1]  # its last answer closed it and never reached the env
        for i in targets:
            start = Start(
                next(self._new_trajectory), parent.group, i, parent.seed, parent.options,
                parent.trajectory, len(past) - (past[0].step if past else 0),
            )  # fmt: skip
            self._begin(i, start, list(past))
        return self._prompts(targets)

    def step(
        self, completions: Sequence[Completion | str], prompts: Sequence[Prompt] | None = None
    ) -> Turn:
        """Answer ``prompts`` (default: all that wait, in order).

        Raises:
            StalePrompt: a prompt does not wait for an answer, or is answered twice.
            ValueError: the numbers of completions and prompts differ.
        """
        asked = self.waiting if prompts is None else list(prompts)
        if isinstance(completions, str):
            raise ValueError("completions must be a list, got one str")
        if len(completions) != len(asked):
            raise ValueError(f"expected {len(asked)} completions, got {len(completions)}")
        self._check_waiting(asked)
        answers = [_completion(i, c) for i, c in enumerate(completions)]
        parsed, actions = self._parse(asked, answers)
        results = self.group.advance(actions)
        experts = self._experts(results)
        turn = Turn([], [])
        for prompt, answer, (reading, closed) in zip(asked, answers, parsed, strict=True):
            i = prompt.view.replica
            del self._waiting[i]
            step = self._record(prompt, answer, reading, results.get(i), closed)
            self._past[i].append(step)
            if not (step.terminated or step.truncated):
                following = self._ask(i, experts.get(i))
                turn.prompts.extend(following)
            # a next prompt that fits no budget has closed its replica on the step just taken
            turn.steps.append(self._past[i][-1])
        return turn

    def rollout(
        self,
        policy: Any,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        on_turn: Callable[[Turn], None] = lambda turn: None,
    ) -> Any:
        """Play one episode on every replica; see :func:`agent_envs.agent.rollout.rollout`."""
        from agent_envs.agent.rollout import rollout

        return rollout(self, policy, seed=seed, options=options, on_turn=on_turn)

    def close(self) -> None:
        self.group.close()

    # -- inside ------------------------------------------------------------------------------

    def _begin(self, replica: int, start: Start, past: list[Step]) -> None:
        self._past[replica], self._trajectory[replica] = past, start.trajectory
        self._waiting.pop(replica, None)
        self.failures.pop(replica, None)
        self._unexecuted.discard(replica)
        self.starts[start.trajectory] = start

    def _check_waiting(self, asked: Sequence[Prompt]) -> None:
        seen: set[int] = set()
        for prompt in asked:
            i = prompt.view.replica
            if i in seen or self._waiting.get(i) is not prompt:
                raise StalePrompt(
                    f"the prompt of replica {i} at step {prompt.view.step} does not wait for an "
                    "answer (answered already, or its episode was reset or forked)"
                )
            seen.add(i)

    def _parse(
        self, asked: Sequence[Prompt], answers: Sequence[Completion]
    ) -> tuple[list[tuple[ParsedAction, str | None]], dict[int, str]]:
        """Readings with the reason that closes a replica (or None), and actions by replica."""
        parsed: list[tuple[ParsedAction, str | None]] = []
        actions: dict[int, str] = {}
        for prompt, answer in zip(asked, answers, strict=True):
            reading = self.parser.parse(answer.text, prefilled=self._prefilled)
            closed = answer.error
            cut = answer.finish_reason == "length" and not reading.valid
            if closed is None and cut and self._on_length == "truncate":
                closed = "the reply was cut at the token limit"
            if closed is None:
                actions[prompt.view.replica] = self._executed(reading)
            parsed.append((reading, closed))
        return parsed, actions

    def _executed(self, reading: ParsedAction) -> str:
        """What the environment gets."""
        if reading.action is not None:
            return reading.action
        return self._invalid_action.replace("{reason}", reading.reason)

    def _record(
        self,
        prompt: Prompt,
        answer: Completion,
        reading: ParsedAction,
        result: Result | None,
        closed: str | None,
    ) -> Step:
        view = prompt.view
        if result is None:  # closed on this side: the env was not stepped
            self._unexecuted.add(view.replica)
            result = Result(view.observation, dict(view.info), truncated=True, error=closed)
        if result.error is not None:
            self.failures[view.replica] = result.error
        info = result.info
        return Step(
            prompt=prompt,
            completion=answer,
            action=self._executed(reading),
            format_valid=reading.valid or closed is not None,
            action_valid=reading.valid and bool(info.get("is_action_valid", False)),
            group=view.group,
            replica=view.replica,
            trajectory=view.trajectory,
            step=view.step,
            observation=view.observation,
            anchor=view.info.get("anchor", ""),
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            error=result.error,
            info=info,
            next_observation=result.observation,
        )

    def _prompts(self, replicas: Sequence[int]) -> list[Prompt]:
        """New prompts for those of ``replicas`` that can go on; they wait from now on."""
        results = {i: self.group.result(i) for i in replicas}
        self.failures.update({i: r.error for i, r in results.items() if r.error is not None})
        experts = self._experts(results)
        going = [i for i, r in results.items() if not (r.terminated or r.truncated)]
        return [prompt for i in going for prompt in self._ask(i, experts.get(i))]

    def _experts(self, results: Mapping[int, Result]) -> dict[int, str | None]:
        """Expert actions of the replicas that go on, where they are wanted."""
        if not self.expert:
            return {}
        going = [i for i, r in results.items() if not (r.terminated or r.truncated)]
        return self.group.expert_actions(going) if going else {}

    def _expert_failed(self, i: int) -> bool:
        """Did asking the expert close the replica; then its episode ends here."""
        error = self.group.result(i).error if self.expert else None
        if error is not None:
            self._end(i, f"expert: {error}")
        return error is not None

    def _ask(self, i: int, expert_action: str | None) -> list[Prompt]:
        """The next prompt of an active replica; none where no prompt fits the budget."""
        if self._expert_failed(i):
            return []
        view = self._view(i, expert_action)
        try:
            prompt = self.builder.build(view, self.memory(self._past[i]))
        except PromptOverflow as error:
            self._end(i, str(error))
            return []
        except Exception as error:  # a memory or builder of the user's; the others go on
            logger.exception("building the prompt of replica %d failed", i)
            self._end(i, f"no prompt could be built: {type(error).__name__}: {error}")
            return []
        self._waiting[i] = prompt
        return [prompt]

    def _end(self, replica: int, reason: str) -> None:
        """No prompt follows: the episode ends here as truncated, on its last step if it has one."""
        logger.warning("replica %d closed: %s", replica, reason)
        self.failures[replica] = reason
        past = self._past[replica]
        if past:
            past[-1] = replace(past[-1], truncated=True, error=reason)

    def _view(self, i: int, expert_action: str | None) -> View:
        group, result = self.group, self.group.result(i)
        info: Mapping[str, Any] = result.info
        admissible = info["admissible_actions"]
        if admissible is not None:
            if not isinstance(admissible, Actions):
                admissible = Actions(admissible)
            admissible = admissible.without(self._hidden) if self._hidden else admissible
        g = i // group.group_size
        return View(
            task=info["task"],
            observation=result.observation,
            admissible_actions=admissible,
            info=info,
            group=g,
            replica=i,
            member=i % group.group_size,
            trajectory=self._trajectory[i],
            step=info["steps"],
            group_seed=group.group_seeds[g],
            format_action=self._format,
            expert_action=expert_action,
        )


def _completion(index: int, answer: Completion | str) -> Completion:
    if isinstance(answer, str):
        return Completion(answer)
    if not isinstance(answer, Completion):
        raise ValueError(
            f"completion {index} must be a str or a Completion, got {type(answer).__name__}"
        )
    return answer
