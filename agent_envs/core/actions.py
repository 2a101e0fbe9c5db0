"""Admissible actions as a read-only list that replicas in the same situation share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn


class Actions(list[str]):
    """A ``list`` of actions that refuses changes; ``list(actions)`` or ``.copy()`` gives a free one.

    Sharing one object instead of copying it at each step halves the memory that a step touches,
    and what prompts need of it is made once per situation: :meth:`without`, :attr:`quoted`.
    """

    __slots__ = ("_quoted", "_without")

    def __init__(self, actions: Iterable[str] = ()) -> None:
        super().__init__(actions)
        self._quoted: str | None = None
        self._without: tuple[tuple[str, ...], Actions] | None = None

    def without(self, hidden: tuple[str, ...]) -> Actions:
        """The same without ``hidden`` ones."""
        known = self._without
        if known is None or known[0] is not hidden:
            known = self._without = hidden, Actions([a for a in self if a not in hidden])
        return known[1]

    @property
    def quoted(self) -> str:
        """``'a', 'b', 'c'``."""
        if self._quoted is None:
            self._quoted = "'" + "', '".join(self) + "'" if self else ""
        return self._quoted

    def __reduce__(self) -> tuple[Any, ...]:
        return Actions, (list(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("admissible actions are shared between replicas: change a copy, list(...)")

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
