"""``python -m trainers.trl_adapter``."""

import sys

from agent_envs.core.errors import MissingExtra
from trainers.trl_adapter.parts import part

if __name__ == "__main__":
    try:
        command = part("command")
    except MissingExtra as error:
        sys.exit(f"error: {error}")
    sys.exit(command.main())
