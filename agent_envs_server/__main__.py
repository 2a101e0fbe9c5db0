"""``python -m agent_envs_server``: the same as ``agent-envs serve``."""

import sys

from agent_envs.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "serve")
    main()
