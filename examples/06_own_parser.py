"""A parser has parse() and format(): here, the last line is the action."""

import agent_envs
from agent_envs.agent import AgentGroup, ParsedAction, RandomPolicy


class LastLine:
    def parse(self, completion, *, prefilled=""):
        lines = (prefilled + completion).strip().splitlines()
        if not lines:
            return ParsedAction(None, False, "the completion is empty")
        return ParsedAction(lines[-1].strip().lower(), True)

    def format(self, action):
        return f"Let me think.\n{action}"


group = agent_envs.make_group("AgentEnv/ALFWorld-v0", num_groups=2, max_steps=5)
agent = AgentGroup(group, parser=LastLine())
rollout = agent.rollout(RandomPolicy(1), seed=4)
assert all(step.format_valid and step.action_valid for step in rollout.steps)
print([step.action for step in rollout.steps])
agent.close()
