"""``python -m trainers.trl_adapter``."""

import sys

from agent_envs.core.errors import MissingExtra

try:
    from trainers.trl_adapter.run import main
except ModuleNotFoundError as error:
    if (error.name or "").startswith("trainers"):
        raise
    sys.exit(f"error: {MissingExtra(f'training ({error.name} is not installed)', 'train')}")

sys.exit(main())
