"""Your own environment in one file: guess a number."""

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy
from agent_envs.core import AgentEnv, ListedTasks, Outcome, Profile, PromptSpec, keyed_seed


class Guess(AgentEnv):
    """Guess a number from 1 to 100; hints say whether to go higher or lower."""

    profile = Profile(
        PromptSpec(
            first="{task} {observation} Answer as <action>number</action>.",
            later="{task} So far:\n{history}\n{observation} Answer as <action>number</action>.",
        ),
        has_expert=True,
    )

    def __init__(self, *, max_steps=10, **options):
        tasks = ListedTasks({"train": [f"game-{i}" for i in range(100)]})
        super().__init__(tasks, max_steps=max_steps, **options)

    @property
    def task(self):
        return "Find the hidden number between 1 and 100."

    def _start(self, task_id, seed, options):
        self.hidden = 1 + keyed_seed(int(task_id.removeprefix("game-"))) % 100
        self.low, self.high = 1, 100  # what the hints leave open: the expert's knowledge
        return "No guess yet."

    def _act(self, action):
        if not (action.isascii() and action.isdecimal() and len(action) < 4):
            return Outcome("That is no number.", action_valid=False)
        guess = int(action)
        if guess == self.hidden:
            return Outcome("Right!", reward=1.0, terminated=True, won=True)
        if guess < self.hidden:
            self.low = max(self.low, guess + 1)
            return Outcome("Higher.")
        self.high = min(self.high, guess - 1)
        return Outcome("Lower.")

    def expert_action(self):
        return str((self.low + self.high) // 2)

    def _snapshot(self):
        return [self.low, self.high, self._last.observation]

    def _restore(self, snapshot):
        self.low, self.high, observation = snapshot
        return observation


agent_envs.register("My/Guess-v0", Guess)
agent = AgentGroup(agent_envs.make_group("My/Guess-v0", num_groups=4, group_size=2))
print(agent.rollout(ExpertPolicy(), seed=1).columns()["won"].sum(), "of 8 replicas won")
