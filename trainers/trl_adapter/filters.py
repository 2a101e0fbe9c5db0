"""DAPO's group filter (dynamic sampling): groups whose episodes all score alike teach nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of, positive
from trainers.gigpo.baselines import counted_samples
from trainers.gigpo.columns import Flags, floats, labels, usable_samples

NonFinite = Literal["drop", "keep"]


def dapo_filter(
    scores: ArrayLike,
    group_ids: ArrayLike | Sequence[Hashable],
    trajectory_ids: ArrayLike | Sequence[Hashable],
    *,
    tolerance: float = 1e-6,
    max_groups: int | None = None,
    last_try: bool = False,
    nonfinite: NonFinite = "drop",
) -> Flags:
    """True for the samples of the groups to keep: those with max_i R_i - min_i R_i > tolerance.

    DAPO (Yu et al. 2025, arXiv:2503.14476), equation 11: 0 < correct answers < group size. One score per
    trajectory is compared (its first sample's; pass returns without penalties). The caller samples again
    for the groups dropped, a bounded number of times. On the ``last_try`` dropped groups are kept too, so
    the batch is never empty: their advantages are 0. ``max_groups`` cuts back to that many groups, in order
    of appearance, the informative ones first.

    A trajectory without a usable score does not count. ``nonfinite="keep"`` and ``tolerance=0`` are the
    seed system's rule, which keeps a group because NaN differs from NaN.
    """
    score = floats("scores", scores)
    groups = labels("group_ids", group_ids, len(score))
    trajectories = labels("trajectory_ids", trajectory_ids, len(score))
    one_of("nonfinite", nonfinite, get_args(NonFinite))
    if not tolerance >= 0:
        raise OptionError(f"tolerance: expected a number >= 0, got {tolerance!r}")
    usable = usable_samples(score)
    counted = counted_samples(usable, groups, trajectories, "trajectories")
    number = groups.max(initial=-1) + 1
    low, high = np.full(number, np.inf), np.full(number, -np.inf)
    np.minimum.at(low, groups[counted], score[counted])
    np.maximum.at(high, groups[counted], score[counted])
    keep = high - low > tolerance
    if nonfinite == "keep":
        members = counted_samples(np.ones_like(usable), groups, trajectories, "trajectories")
        strange = np.bincount(groups[members & ~usable], minlength=number) > 0
        keep |= strange & (np.bincount(groups[members], minlength=number) > 1)
    if last_try or max_groups is not None:
        order = np.argsort(~keep, kind="stable")  # the informative ones first
        wanted = number if last_try else int(keep.sum())
        if max_groups is not None:
            wanted = min(wanted, positive("max_groups", max_groups))
        keep = np.zeros(number, np.bool_)
        keep[order[:wanted]] = True
    return keep[groups]
