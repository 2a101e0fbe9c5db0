"""One growing conversation instead of a fresh prompt at each step, within a budget."""

import agent_envs
from agent_envs.agent import AgentGroup, ConversationPrompt, RandomPolicy

group = agent_envs.make_group("AgentEnv/ALFWorld-v0", 1, 1, max_steps=12)
agent = AgentGroup(group, prompt=ConversationPrompt(group.profile.prompt, max_prompt_chars=6000))
rollout = agent.rollout(RandomPolicy(0), seed=1)
last = rollout.steps[-1].prompt
print([message["role"] for message in last.messages])
print(last.messages[-1]["content"])
agent.close()
