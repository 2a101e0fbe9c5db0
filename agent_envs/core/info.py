"""The ``info`` keys that every environment fills in, each with one Python type for ever.

Gymnasium's vector infos take a column's dtype from its first value, so a key never changes its
type between steps: ``score`` is always a float, ``steps`` always an int.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InfoKey:
    """``default`` is what a replica shows that never came to its first observation."""

    type: type
    default: Any
    meaning: str
    sparse: bool = False


INFO_KEYS: dict[str, InfoKey] = {
    "task": InfoKey(str, "", "the task in words"),
    "task_id": InfoKey(str, "", "stable name of the task within its data"),
    "admissible_actions": InfoKey(
        list, None, "actions that do something now; None: not enumerable"
    ),
    "is_action_valid": InfoKey(bool, False, "did the environment understand the last action"),
    "anchor": InfoKey(str, "", "key of the state as the agent sees it (GiGPO's grouping)"),
    "won": InfoKey(bool, False, "is the task solved"),
    "score": InfoKey(float, 0.0, "progress in [0, 1]; 1.0 is solved"),
    "steps": InfoKey(int, 0, "actions taken in this episode"),
    "data_source": InfoKey(str, "", "embedded, imported or the data path's name", sparse=True),
    "error": InfoKey(str, "", "why this replica was closed", sparse=True),
}
