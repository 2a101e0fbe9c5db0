"""A text space that holds real text.

Gymnasium's ``Text`` by default refuses blanks, full stops, the empty string and everything outside
ASCII letters and digits (FIELD_CASES F081). :class:`TextSpace` contains every ``str`` that can be
encoded, of any length, and works with Gymnasium's batching, iterating and JSON utilities.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Space, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils.shared_memory import create_shared_memory

_SAMPLE_CHARACTERS = tuple(
    "abcdefghijklmnopqrstuvwxyz ABCXYZ0123456789.,'{}<>\n\u00e9\u6f22\U0001f600"
)
_SAMPLE_LENGTH = 24


def check_text(text: object, what: str = "action") -> str:
    """Return ``text`` if it is a string that can be encoded.

    Raises:
        ValueError: it is not a ``str``, or holds a lone surrogate (which no encoder can write).
    """
    if not isinstance(text, str):
        raise ValueError(f"{what} must be a str, got {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{what} holds a lone surrogate ({text[error.start]!r}) at position {error.start}; "
                "decode it with errors='replace' first"
            ) from None
    return text


class TextSpace(Text):
    """All strings that can be encoded as UTF-8, the empty one included.

    Samples are short strings over a small mixed alphabet. Flattening is refused: a text of any
    length has no fixed-size array form; tokenise it instead.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        # Text builds tables of its characters, 6 kB a space: all text spaces share one set of them
        self.__dict__.update(_tables())
        Space.__init__(self, dtype=str, seed=seed)

    def __deepcopy__(self, memo: dict[int, Any]) -> TextSpace:
        return TextSpace(deepcopy(self._np_random, memo))

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random short string; masks make no sense here and are refused."""
        if mask is not None or probability is not None:
            raise ValueError("TextSpace has no masked sampling: sample from the admissible actions")
        length = int(self.np_random.integers(0, _SAMPLE_LENGTH + 1))
        indices = self.np_random.integers(0, len(_SAMPLE_CHARACTERS), length)
        return "".join(_SAMPLE_CHARACTERS[i] for i in indices)

    def contains(self, x: Any) -> bool:
        try:
            check_text(x)
        except ValueError:
            return False
        return True

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "TextSpace()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace)

    def __hash__(self) -> int:
        return 0  # all text spaces are equal


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return dict(vars(Text(max_length=2**31 - 1, min_length=0, charset="".join(_SAMPLE_CHARACTERS))))


def _refuse(space: Space[Any], *_: Any) -> NoReturn:
    raise NotImplementedError(
        "TextSpace cannot be flattened: text of any length has no fixed-size array form. "
        "Use a tokenizer, or an environment option with numeric observations."
    )


def _refuse_shared_memory(space: Space[Any], *_: Any, **__: Any) -> NoReturn:
    # what Gymnasium's AsyncVectorEnv turns into "use shared_memory=False"; without this it would
    # try to reserve the longest text that there could be
    raise CustomSpaceError("TextSpace has no fixed size, so it has no place in shared memory")


create_shared_memory.register(TextSpace)(_refuse_shared_memory)
for _utility in (flatdim, flatten, flatten_space, unflatten):
    _utility.register(TextSpace)(_refuse)
