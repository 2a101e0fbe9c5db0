"""Steps to columns: what a trainer takes."""

import numpy as np

import agent_envs
from agent_envs.agent import AgentGroup, RandomPolicy

group = agent_envs.make_group("AgentEnv/Blackjack-v0", 4, 4)
agent = AgentGroup(group)
columns = agent.rollout(RandomPolicy(0), seed=0).columns()
returns = np.bincount(columns["trajectory"], columns["reward"])  # one per trajectory
for g in range(group.num_groups):
    members = np.unique(columns["trajectory"][columns["group"] == g])
    baseline = returns[members].mean()
    print(f"group {g}: returns {returns[members]}, advantages {returns[members] - baseline}")
print({name: column.dtype for name, column in columns.items()})
agent.close()
