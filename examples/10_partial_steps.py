"""Answer any subset of the waiting prompts: nobody waits for the slowest."""

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy

agent = AgentGroup(agent_envs.make_group("AgentEnv/ALFWorld-v0", 2, 3), expert=True)
policy = ExpertPolicy()
queue = agent.reset(seed=5)
steps = 0
while queue:
    ready = queue[: 1 + steps % 3]  # whatever came back first
    turn = agent.step(policy.act(ready), ready)
    queue = queue[len(ready) :] + turn.prompts
    steps += len(turn.steps)
print(f"{steps} steps; {agent.group.terminated.sum()} of 6 replicas solved their task")
agent.close()
