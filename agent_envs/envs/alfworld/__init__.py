"""ALFWorld: household tasks in text, on a native engine."""

from agent_envs.envs.alfworld.engine import Engine
from agent_envs.envs.alfworld.env import ALFWorldEnv
from agent_envs.envs.alfworld.export import write_game_file
from agent_envs.envs.alfworld.generator import generate
from agent_envs.envs.alfworld.problem import Problem, UnsupportedGame, read_game_file

__all__ = [
    "ALFWorldEnv",
    "Engine",
    "Problem",
    "UnsupportedGame",
    "generate",
    "read_game_file",
    "write_game_file",
]
