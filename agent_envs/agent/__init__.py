"""The agent's side: prompts, memories, parsers, policies and rollouts. Knows no trainers."""

from agent_envs.agent import memory
from agent_envs.agent.group import AgentGroup, Turn
from agent_envs.agent.memory import Memory
from agent_envs.agent.openai import OpenAIChatPolicy
from agent_envs.agent.parsing import (
    ActionParser,
    CodeParser,
    JsonParser,
    ParsedAction,
    TagParser,
    parser_for,
)
from agent_envs.agent.policies import ExpertPolicy, RandomPolicy, ReplayPolicy
from agent_envs.agent.prompt import ConversationPrompt, PromptBuilder, TemplatePrompt
from agent_envs.agent.records import Completion, Note, Prompt, Start, Step, View
from agent_envs.agent.rollout import AsyncPolicy, Policy, Rollout
from agent_envs.agent.template import Template

__all__ = [
    "ActionParser",
    "AgentGroup",
    "AsyncPolicy",
    "CodeParser",
    "Completion",
    "ConversationPrompt",
    "ExpertPolicy",
    "JsonParser",
    "Memory",
    "Note",
    "OpenAIChatPolicy",
    "ParsedAction",
    "Policy",
    "Prompt",
    "PromptBuilder",
    "RandomPolicy",
    "ReplayPolicy",
    "Rollout",
    "Start",
    "Step",
    "TagParser",
    "Template",
    "TemplatePrompt",
    "Turn",
    "View",
    "memory",
    "parser_for",
]
