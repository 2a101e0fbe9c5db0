"""Make an environment and play it at random."""

import random

import gymnasium

env = gymnasium.make("agent_envs:AgentEnv/ALFWorld-v0", difficulty="easy")
draw = random.Random(0)
observation, info = env.reset(seed=7)
print(observation)
terminated = truncated = False
while not (terminated or truncated):
    action = draw.choice(info["admissible_actions"])
    observation, reward, terminated, truncated, info = env.step(action)
print(f"{info['steps']} steps, solved: {info['won']}, last: {observation}")
