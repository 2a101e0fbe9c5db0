"""Keyed seeds: every random draw is a pure function of named integers.

``keyed_seed(a, b, ...)`` hashes the integers with :class:`numpy.random.SeedSequence`, whose
algorithm NumPy guarantees to stay the same across versions and platforms (NEP 19). No global
generator and no ``hash()`` take part anywhere.
"""

from __future__ import annotations

import numpy as np

SEED_BITS = 63  # fits a signed 64-bit column


def keyed_seed(*key: int) -> int:
    """A seed in [0, 2**63) that depends on all of ``key``.

    Raises:
        ValueError: a part is no non-negative integer (any size will do); names the part.
    """
    for place, part in enumerate(key):
        if not isinstance(part, int | np.integer) or part < 0:
            raise ValueError(
                f"keyed_seed takes non-negative integers; part {place} of its key is {part!r}"
            )
    high, low = np.random.SeedSequence(key).generate_state(2, np.uint32)
    return (int(high) << 32 | int(low)) & (1 << SEED_BITS) - 1


def fresh_seed() -> int:
    """A seed from the operating system's entropy, for those who gave none."""
    entropy = np.random.SeedSequence().entropy
    assert isinstance(entropy, int)
    return entropy & (1 << SEED_BITS) - 1


def check_seed(seed: object) -> int:
    """Return ``seed`` as an int; ValueError unless it is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"a seed must be a non-negative integer, got {seed!r}")
    return int(seed)
