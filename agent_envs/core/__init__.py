"""The floor of the hub: environments, spaces, tasks, ``info`` keys, errors. Knows no groups or prompts."""

from agent_envs.core.env import AgentEnv, Obs, Outcome
from agent_envs.core.errors import (
    AgentEnvError,
    DataError,
    MissingExtra,
    OptionError,
    PolicyError,
    PromptOverflow,
    ServerError,
    ServerUnreachable,
    StalePrompt,
    StateError,
    StateNotPortable,
    TemplateError,
)
from agent_envs.core.info import INFO_KEYS, InfoKey
from agent_envs.core.profile import DEFAULT_PROFILE, Profile, PromptSpec, Spec
from agent_envs.core.seeding import keyed_seed
from agent_envs.core.spaces import TextSpace, check_text
from agent_envs.core.tasks import ListedTasks, TaskSet
from agent_envs.core.visual import VisualEnv

__all__ = [
    "DEFAULT_PROFILE",
    "INFO_KEYS",
    "AgentEnv",
    "AgentEnvError",
    "DataError",
    "InfoKey",
    "ListedTasks",
    "MissingExtra",
    "Obs",
    "OptionError",
    "Outcome",
    "PolicyError",
    "Profile",
    "PromptOverflow",
    "PromptSpec",
    "ServerError",
    "ServerUnreachable",
    "Spec",
    "StalePrompt",
    "StateError",
    "StateNotPortable",
    "TaskSet",
    "TemplateError",
    "TextSpace",
    "VisualEnv",
    "check_text",
    "keyed_seed",
]
