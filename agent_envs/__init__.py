"""agent-envs: environments for training LLM and VLM agents, in groups, behind Gymnasium's interface.

``import agent_envs`` registers the ids with Gymnasium and loads nothing heavy; everything below is
imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agent_envs.registration import env_class, make_group, register, registered_ids

if TYPE_CHECKING:
    from agent_envs.core import AgentEnv, Outcome, Profile, PromptSpec, Spec, TaskSet
    from agent_envs.evaluation import evaluate
    from agent_envs.group import GroupVectorEnv, Process
    from agent_envs.group.ray import Ray
    from agent_envs.group.remote import Remote

__version__ = "0.1.0"

_LAZY = {
    "AgentEnv": "agent_envs.core",
    "AgentEnvError": "agent_envs.core",
    "ListedTasks": "agent_envs.core",
    "Outcome": "agent_envs.core",
    "Profile": "agent_envs.core",
    "PromptSpec": "agent_envs.core",
    "Spec": "agent_envs.core",
    "TaskSet": "agent_envs.core",
    "evaluate": "agent_envs.evaluation",
    "GroupVectorEnv": "agent_envs.group",
    "Process": "agent_envs.group",
    "Ray": "agent_envs.group.ray",
    "Remote": "agent_envs.group.remote",
}

__all__ = [  # noqa: RUF022 (the eager names first)
    "env_class",
    "make_group",
    "register",
    "registered_ids",
    "AgentEnv",
    "GroupVectorEnv",
    "Outcome",
    "Process",
    "Profile",
    "PromptSpec",
    "Ray",
    "Remote",
    "Spec",
    "TaskSet",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
