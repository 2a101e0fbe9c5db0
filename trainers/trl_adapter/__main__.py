"""``python -m trainers.trl_adapter``."""

import sys

from trainers.trl_adapter.run import main

sys.exit(main())
