"""Options that would name files or URLs of the server's machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_envs_server.refusals import Refusal

_PATHS = ("data_dir", "retriever", "game_file", "levels", "goals", "images", "base_url")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]*")


def check_paths(options: Mapping[Any, Any]) -> None:
    """Refuse a client's options that could name a file or URL; plain words (``imported``) pass."""
    for name in _PATHS:
        value = options.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or not _PLAIN_WORD.fullmatch(value):
            raise Refusal(
                "OPTION_ERROR",
                f"{name} would name a file or URL of the server's machine: set it there "
                "(environment variables such as ALFWORLD_DATA), or serve with --allow-paths",
            )
