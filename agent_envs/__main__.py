"""``python -m agent_envs``: the command line."""

from agent_envs.cli import main

if __name__ == "__main__":
    main()
