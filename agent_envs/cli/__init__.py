"""The command line: ``agent-envs``."""

from agent_envs.cli.main import main

__all__ = ["main"]
