"""Keyed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from agent_envs.core import keyed_seed


@pytest.mark.parametrize(
    ("key", "named"), [((3, "queue-1"), "part 1 of its key is 'queue-1'"), ((-1,), "part 0 of its")]
)
def test_a_part_that_is_no_integer_is_named(key, named):
    with pytest.raises(ValueError, match=named):
        keyed_seed(*key)


def test_any_non_negative_integers_will_do():
    assert keyed_seed(np.int64(3), 2**70) == keyed_seed(3, 2**70)
