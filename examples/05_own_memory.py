"""A memory is a function from past steps to those that the prompt shows."""

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, Note


def changes_only(past):
    """Shows the steps that changed something, and says how many it left out."""
    kept = [step for step in past if step.action.split()[0] in ("take", "move", "open", "heat")]
    return [Note(f"({len(past) - len(kept)} uneventful steps not shown)"), *kept]


group = agent_envs.make_group("AgentEnv/ALFWorld-v0", num_groups=1, difficulty="easy")
agent = AgentGroup(group, memory=changes_only)
rollout = agent.rollout(ExpertPolicy(), seed=4)
print(rollout.steps[-1].prompt.text)
agent.close()
