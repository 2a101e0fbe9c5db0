"""Groups by gymnasium.make_vec: the replicas of a group share one start."""

import gymnasium

import agent_envs  # registers the ids

envs = gymnasium.make_vec("AgentEnv/ALFWorld-v0", num_envs=8, group_size=4)
observations, infos = envs.reset(seed=3)
assert observations[0] == observations[3]  # same group
assert observations[0] != observations[4]  # another group
actions = [choices[i % len(choices)] for i, choices in enumerate(infos["admissible_actions"])]
actions[5] = None  # leave replica 5 alone
observations, rewards, terminated, truncated, infos = envs.step(actions)
print(infos["steps"], rewards, f"agent-envs {agent_envs.__version__}")
envs.close()
