"""Groups of replicas over interchangeable backends."""

from agent_envs.group.process import Process
from agent_envs.group.protocol import Backend, Definition, ResetRequest, Result
from agent_envs.group.shard import Inline, Shard
from agent_envs.group.vector import BACKENDS, GroupVectorEnv

__all__ = [
    "BACKENDS",
    "Backend",
    "Definition",
    "GroupVectorEnv",
    "Inline",
    "Process",
    "ResetRequest",
    "Result",
    "Shard",
]
