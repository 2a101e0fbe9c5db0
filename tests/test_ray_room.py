"""Ray with too few CPUs for the actors: said, rather than waited out in silence."""

from __future__ import annotations

import pytest

import agent_envs
from agent_envs.core import OptionError
from agent_envs.group.process import WorkerDied

TOY = "tests.toy:ToyEnv"


@pytest.fixture
def ray():
    ray = pytest.importorskip("ray")
    agent_envs.register("Test/Toy-v0", TOY)
    ray.shutdown()
    yield ray
    ray.shutdown()


def test_a_joined_cluster_is_waited_for_and_the_shortage_said(ray):
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    backend = agent_envs.Ray(2, start_timeout=8)
    with (
        pytest.warns(UserWarning, match=r"Ray has 1 CPUs and 2 are needed.* up to 8 s"),
        pytest.raises(WorkerDied, match=r"within 8 s \(start_timeout\): Ray has 1 CPUs and 2 are"),
    ):
        agent_envs.make_group("Test/Toy-v0", 2, 1, backend=backend)


def test_a_cluster_of_ones_own_that_cannot_hold_them_is_an_error_at_once(ray):
    backend = agent_envs.Ray(2, actor_options={"num_cpus": 10_000})
    with pytest.raises(OptionError, match="20000 are needed"):
        agent_envs.make_group("Test/Toy-v0", 2, 1, backend=backend)
