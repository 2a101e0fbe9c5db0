"""Simple policies: random, scripted expert, scripted replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_envs.agent.records import Completion, Prompt, View
from agent_envs.core.errors import PolicyError
from agent_envs.core.seeding import check_seed, keyed_seed


class RandomPolicy:
    """Uniform over the admissible actions.

    Draws are keyed by ``seed``, group seed, place in the group and step, so they do not depend on
    which other replicas are active or how many there are.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = check_seed(seed)

    def act(self, prompts: Sequence[Prompt]) -> list[str]:
        return [self._answer(prompt.view) for prompt in prompts]

    def _answer(self, view: View) -> str:
        actions = view.admissible_actions
        if not actions:
            raise PolicyError(
                "RandomPolicy needs admissible actions, and this environment lists none at step "
                f"{view.step}"
            )
        draw = keyed_seed(self._seed, view.group_seed, view.member, view.step)
        return view.format_action(actions[draw % len(actions)])


class ExpertPolicy:
    """The environment's own scripted expert, asked through the group."""

    needs_expert = True

    def act(self, prompts: Sequence[Prompt]) -> list[str]:
        return [self._answer(prompt.view) for prompt in prompts]

    def _answer(self, view: View) -> str:
        if view.expert_action is None:
            raise PolicyError(
                "no expert action in the view: the environment has no expert, or the group was "
                "stepped by hand without AgentGroup(..., expert=True)"
            )
        return view.format_action(view.expert_action)


class ReplayPolicy:
    """Plays written-down actions; a replica whose script has ended is closed.

    Args:
        scripts: actions of one episode for all replicas, or a mapping from replica to actions.
    """

    def __init__(self, scripts: Sequence[str] | Mapping[int, Sequence[str]]) -> None:
        self._scripts = scripts

    def act(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [self._answer(prompt.view) for prompt in prompts]

    def _answer(self, view: View) -> Completion:
        scripts = self._scripts
        script = scripts.get(view.replica, ()) if isinstance(scripts, Mapping) else scripts
        if view.step >= len(script):
            return Completion("", error=f"the script ends after {len(script)} actions")
        return Completion(view.format_action(script[view.step]))
