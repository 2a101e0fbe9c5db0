"""Sokoban: push boxes onto targets, in text and in pictures."""

from agent_envs.envs.sokoban.env import SokobanEnv
from agent_envs.envs.sokoban.generator import generate
from agent_envs.envs.sokoban.room import Room, RoomError
from agent_envs.envs.sokoban.solver import Solution, solve

__all__ = ["Room", "RoomError", "SokobanEnv", "Solution", "generate", "solve"]
