"""The env server: groups of replicas over a socket. ``agent-envs serve`` starts it."""

from agent_envs_server.settings import Limits, Settings

__all__ = ["Limits", "Settings"]
