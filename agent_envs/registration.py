"""Ids, and how Gymnasium makes single environments and groups of them.

Gymnasium tells a vector entry point neither id nor spec, so the entry point itself names the id:
``"agent_envs.registration:AgentEnv/ALFWorld-v0"`` is an attribute of this module, served by
:func:`__getattr__`. It is a plain string, so specs still serialise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import gymnasium
from gymnasium.envs.registration import registry

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from agent_envs.core.env import AgentEnv
    from agent_envs.group.vector import GroupVectorEnv

BUILT_IN = {
    "AgentEnv/ALFWorld-v0": "agent_envs.envs.alfworld:ALFWorldEnv",
    "AgentEnv/NumberLine-v0": "agent_envs.envs.cards:NumberLineEnv",
    "AgentEnv/EZPoints-v0": "agent_envs.envs.cards:EZPointsEnv",
    "AgentEnv/Points24-v0": "agent_envs.envs.cards:Points24Env",
    "AgentEnv/Blackjack-v0": "agent_envs.envs.cards:BlackjackEnv",
    "AgentEnv/Sokoban-v0": "agent_envs.envs.sokoban:SokobanEnv",
    "AgentEnv/Search-v0": "agent_envs.envs.search:SearchEnv",
    "AgentEnv/WebShop-v0": "agent_envs.envs.webshop:WebShopEnv",
    "AgentEnv/AppWorld-v0": "agent_envs.envs.appworld:AppWorldEnv",
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # id -> (built-in id, its options)
    f"AgentEnv/Sokoban-{side}x{side}-{boxes}box-v0": (
        "AgentEnv/Sokoban-v0",
        {"dim_room": (side, side), "num_boxes": boxes},
    )
    for side, boxes in ((6, 1), (6, 2), (7, 2), (8, 3), (10, 4))
}
_ids: list[str] = []


def register(env_id: str, entry_point: str | type[AgentEnv], **kwargs: Any) -> None:
    """Make an environment known by id, to Gymnasium and to groups. Safe to repeat.

    Args:
        env_id: such as ``"My/Guess-v0"``.
        entry_point: ``"module:Class"``, or the class itself.
        kwargs: defaults of the class's options.

    Raises:
        ValueError: the id is registered already with another entry point or other defaults.
    """
    known = registry.get(env_id)
    if env_id not in _ids:
        _ids.append(env_id)
    if known is not None:
        # a class defined in a script is a new object at each definition: compare names
        if _name(known.entry_point) == _name(entry_point) and known.kwargs == kwargs:
            if not isinstance(entry_point, str):
                known.entry_point = cast("Any", entry_point)
            return
        raise ValueError(
            f"{env_id} is registered already, with {known.entry_point!r} and {known.kwargs!r}"
        )
    gymnasium.register(
        env_id,
        entry_point=cast("Any", entry_point),
        vector_entry_point=f"{__name__}:{env_id}",
        kwargs=kwargs,
    )


def _name(entry_point: Any) -> str:
    if isinstance(entry_point, str):
        return entry_point.replace(":", ".")
    return f"{entry_point.__module__}.{entry_point.__qualname__}"


def registered_ids() -> tuple[str, ...]:
    """All ids of the hub and of users' own environments, in order of registration."""
    return tuple(_ids)


def env_class(env_id: str) -> type[AgentEnv]:
    """The class behind an id, also one that was registered with Gymnasium itself.

    Raises:
        KeyError: unknown, or what makes it is no subclass of AgentEnv.
    """
    from agent_envs.core.env import AgentEnv  # here: listing ids stays light

    if env_id not in registry:
        raise KeyError(f"unknown environment id {env_id!r}; known: {', '.join(_ids)}")
    found: Any = registry[env_id].entry_point
    if isinstance(found, str):
        module, _, name = found.partition(":")
        found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, AgentEnv)):
        raise KeyError(f"{env_id!r} is made by {found!r}, which is no subclass of AgentEnv")
    return found


def spec_of(env_id: str) -> EnvSpec:
    """Gymnasium's spec of a registered id, or of ``"module:id"``, whose module is imported first.

    Raises:
        gymnasium.error.Error: no such id; names similar ones.
        ImportError: no such module.
    """
    module, colon, name = env_id.rpartition(":")
    if colon:
        importlib.import_module(module)
    try:
        return gymnasium.spec(name)
    except gymnasium.error.NameNotFound as error:
        near = get_close_matches(name, _ids, n=3, cutoff=0.5)
        if not near or "Did you mean" in str(error):
            raise
        # Gymnasium looks inside the namespace that was given: none, where AgentEnv/ is left out
        raise gymnasium.error.NameNotFound(f"{error} Did you mean {', '.join(near)}?") from None


def make_group(
    env_id: str, num_groups: int = 1, group_size: int = 1, backend: Any = "inline", **options: Any
) -> GroupVectorEnv:
    """A vector environment of ``num_groups`` groups of ``group_size`` replicas each.

    Args:
        env_id: a registered id, or ``"module:id"``.
        backend: ``"inline"``, ``"process"``, ``"ray"``, or a backend object such as ``Process(workers=4)``.
        options: the environment's own options.
    """
    from agent_envs.group.vector import GroupVectorEnv

    spec = spec_of(env_id)
    return GroupVectorEnv(spec, num_groups, group_size, backend=backend, options=options)


def _make_vec(env_id: str, num_envs: int, group_size: int = 1, **options: Any) -> GroupVectorEnv:
    if "max_episode_steps" in options:
        raise ValueError("max_episode_steps is not used here: pass max_steps, which states carry")
    if group_size < 1 or num_envs % group_size:
        raise ValueError(f"num_envs ({num_envs}) must be a multiple of group_size ({group_size})")
    return make_group(env_id, num_envs // group_size, group_size, **options)


def __getattr__(name: str) -> Callable[..., GroupVectorEnv]:
    if "/" in name or name in _ids:
        return partial(_make_vec, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _id, _entry_point in BUILT_IN.items():
    register(_id, _entry_point)
for _id, (_base, _options) in VARIANTS.items():
    register(_id, BUILT_IN[_base], **_options)
