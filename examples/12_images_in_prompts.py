"""Pictures in prompts: chat messages with image parts, bounded by a budget."""

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, TemplatePrompt

group = agent_envs.make_group("AgentEnv/Sokoban-v0", 1, 1, obs_mode="both", tile_size=28)
builder = TemplatePrompt(group.profile.prompt, max_images=2)  # now and one step before
agent = AgentGroup(group, prompt=builder)
rollout = agent.rollout(ExpertPolicy(), seed=1)
prompt = rollout.steps[-1].prompt
(message,) = prompt.chat()  # as a Hugging Face processor takes it
print([part["type"] for part in message["content"]])
print([image.size for image in prompt.pil_images()])
agent.close()
