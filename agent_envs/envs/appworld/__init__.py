"""AppWorld: everyday tasks in apps, by writing code; the embedded world and the real benchmark."""

from agent_envs.envs.appworld.env import AppWorldEnv

__all__ = ["AppWorldEnv"]
