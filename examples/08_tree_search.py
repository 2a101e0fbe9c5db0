"""Fork in mid-episode: widen a search from wherever it pays."""

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, RandomPolicy

group = agent_envs.make_group("AgentEnv/ALFWorld-v0", num_groups=1, group_size=4)
agent = AgentGroup(group, expert=True)
prompts = agent.reset(seed=2)
expert, explore = ExpertPolicy(), RandomPolicy(0)
for _ in range(3):  # replica 0 goes ahead alone
    prompts = agent.step(expert.act(prompts[:1]), prompts[:1]).prompts
prompts = agent.fork(0, targets=[1, 2, 3])  # the others branch off there
turn = agent.step(explore.act(prompts), prompts)
for step in turn.steps:
    origin = agent.starts[step.trajectory]
    print(f"trajectory {step.trajectory} from {origin.parent}, step {step.step}: {step.action}")
agent.close()
