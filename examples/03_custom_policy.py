"""A policy is anything with act(prompts): here, one that opens what it can."""

import agent_envs
from agent_envs.agent import AgentGroup


class Opener:
    """Opens closed things, else takes the step-th admissible action."""

    def act(self, prompts):
        return [self.answer(prompt.view) for prompt in prompts]

    def answer(self, view):
        doors = [a for a in view.admissible_actions if a.startswith("open")]
        action = doors[0] if doors else view.admissible_actions[view.step % 7]
        return f"<think>What is inside?</think><action>{action}</action>"


agent = AgentGroup(agent_envs.make_group("AgentEnv/ALFWorld-v0", num_groups=2, group_size=2))
rollout = agent.rollout(Opener(), seed=0)
print(rollout.steps[-1].prompt.text)
print(len(rollout.steps), "steps")
agent.close()
