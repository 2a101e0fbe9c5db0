"""The training command with FSDP on CPUs, which accelerate supports on accelerators only.

``accelerate launch --config_file fsdp2.yaml -m tests.fsdp_cpu --config ...``
"""

from __future__ import annotations

import sys
from typing import Any

from accelerate.state import AcceleratorState, DistributedType, PartialState

from trainers.trl_adapter.command import main

_init = AcceleratorState.__init__


def init(state: Any, *args: Any, fsdp_plugin: Any = None, **options: Any) -> None:
    _init(state, *args, fsdp_plugin=fsdp_plugin, **options)
    if fsdp_plugin is not None and state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = fsdp_plugin
        PartialState._shared_state["distributed_type"] = state.distributed_type


if __name__ == "__main__":
    AcceleratorState.__init__ = init
    sys.exit(main())
