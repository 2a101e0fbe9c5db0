"""An exact-once panel: every task of a split once, whatever the batch size."""

import agent_envs
from agent_envs.agent import ExpertPolicy

result = agent_envs.evaluate(
    ExpertPolicy(), "AgentEnv/ALFWorld-v0", split="valid_seen", num_envs=48
)
low, high = result.interval
print(f"{len(result.episodes)} tasks, {result.success_rate:.1%} solved ({low:.1%} to {high:.1%})")
for task_type, part in result.by_type().items():
    print(f"{task_type:35} {part.success_rate:6.1%} in {part.mean_steps:.1f} steps")
