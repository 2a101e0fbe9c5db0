"""Options that would name files or URLs of the server's machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from agent_envs.registration import env_class
from agent_envs_server.refusals import Refusal

_PATHS = ("data_dir", "retriever", "game_file", "levels", "goals", "images", "base_url")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]+")


def check_paths(env_id: str, options: Mapping[Any, Any]) -> None:
    """Refuse a client's options that could name a file or URL; plain words (``imported``) pass.

    A word that is the name of something in the folder that the server runs in names that. Options that
    an environment keeps for whoever runs it (:attr:`AgentEnv.local_options`) are refused whatever they hold.
    """
    for name in env_class(env_id).local_options:
        if name in options:
            raise Refusal(
                "OPTION_ERROR",
                f"{name} is for whoever runs the server: it has to serve with --allow-paths",
            )
    for name in _PATHS:
        value = options.get(name)
        if value is None:
            continue
        plain = isinstance(value, str) and _PLAIN_WORD.fullmatch(value)
        if not plain or os.path.exists(value):  # noqa: PTH110 - Path's raises on overlong names
            raise Refusal(
                "OPTION_ERROR",
                f"{name} would name a file or URL of the server's machine: set it there "
                "(environment variables such as ALFWORLD_DATA), or serve with --allow-paths",
            )
