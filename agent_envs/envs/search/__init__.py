"""Questions that are answered by searching."""

from agent_envs.envs.search.answers import contains_match, exact_match, normalise
from agent_envs.envs.search.env import SearchEnv
from agent_envs.envs.search.questions import Question, load_questions

__all__ = ["Question", "SearchEnv", "contains_match", "exact_match", "load_questions", "normalise"]
