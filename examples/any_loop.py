"""Any loop that asks one environment at a time: messages out, the model's reply in."""

from agent_envs.adapters.text_env import TextEnv


def model(messages):
    """In the place of yours: messages are chat messages, the reply is its whole answer."""
    return "<think>Down is free.</think><action>down</action>"


env = TextEnv("AgentEnv/Sokoban-6x6-1box-v0", max_steps=4)
for member in range(2):  # a group: the same seed is the same start
    turn, total = env.reset(seed=7), 0.0
    while not turn.done:
        turn = env.step(model(turn.messages))
        total += turn.reward
    print(member, turn.info["steps"], turn.info["won"], round(total, 2), turn.error)
env.close()
