"""The same group over worker processes, with experts and prompts; results are the same bytes."""

import agent_envs
from agent_envs import Process
from agent_envs.agent import AgentGroup, ExpertPolicy


def transcript(backend):
    group = agent_envs.make_group("AgentEnv/ALFWorld-v0", 2, 2, backend=backend)
    agent = AgentGroup(group)
    rollout = agent.rollout(ExpertPolicy(), seed=8)
    agent.close()
    return rollout.columns()["prompt"].tolist()


ours, theirs = transcript("inline"), transcript(Process(workers=2, timeout=30))
assert ours == theirs
print(len(ours), "prompts, equal in process and inline")
