"""Records that are made at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """A slotted dataclass that the type checker holds frozen.

    Enforcing that at run time would take two thirds of a record's construction (each field through
    ``object.__setattr__``), and several records are made per step.
    """
    return dataclass(slots=True)(cls)
