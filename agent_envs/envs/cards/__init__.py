"""Four card games, in text and in pictures: NumberLine, EZPoints, Points24, Blackjack."""

from agent_envs.envs.cards.blackjack import BlackjackEnv
from agent_envs.envs.cards.expression import FormulaError, evaluate
from agent_envs.envs.cards.ez_points import EZPointsEnv
from agent_envs.envs.cards.number_line import NumberLineEnv
from agent_envs.envs.cards.points24 import Points24Env
from agent_envs.envs.cards.solver import solve

__all__ = [
    "BlackjackEnv",
    "EZPointsEnv",
    "FormulaError",
    "NumberLineEnv",
    "Points24Env",
    "evaluate",
    "solve",
]
