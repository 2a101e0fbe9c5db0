"""A dict some of whose values are made when first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class LazyDict(dict[str, Any]):
    """A ``dict`` with values that cost something and that few look at.

    Everything that could show such a value makes it first, so nobody can tell the difference:
    subscripts, ``get``, iteration over values or items, copies, comparison, pickling.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: dict[str, Callable[[], Any]] = {}

    def later(self, key: str, make: Callable[[], Any]) -> None:
        """Set ``key`` to what ``make()`` returns, once somebody looks."""
        super().__setitem__(key, None)
        self._later[key] = make

    def _make_all(self) -> None:
        for key in tuple(self._later):
            self[key]

    def __getitem__(self, key: str) -> Any:
        if key in self._later:
            super().__setitem__(key, self._later.pop(key)())
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._later.pop(key, None)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._later.pop(key, None)
        super().__delitem__(key)

    def __iter__(self) -> Iterator[str]:
        # overridden so that dict(x) and {**x} come by __getitem__ instead of copying our slots
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is get

    def pop(self, key: str, *default: Any) -> Any:
        self._make_all()
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        self._make_all()
        return super().popitem()

    def values(self) -> Any:
        self._make_all()
        return super().values()

    def items(self) -> Any:
        self._make_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)
