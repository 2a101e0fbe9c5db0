"""GiGPO (group-in-group policy optimisation) on step samples, in NumPy.

One sample is one decision; all arguments are columns over the samples, and the samples of a trajectory
stand in time order (as in ``Rollout.columns()``). float32 columns are computed in float32, all else in
float64.
"""

from trainers.gigpo.advantages import gigpo_advantages
from trainers.gigpo.anchors import anchor_groups
from trainers.gigpo.columns import NonFiniteWarning, usable_samples
from trainers.gigpo.returns import episode_returns, step_returns

__all__ = [
    "NonFiniteWarning",
    "anchor_groups",
    "episode_returns",
    "gigpo_advantages",
    "step_returns",
    "usable_samples",
]
