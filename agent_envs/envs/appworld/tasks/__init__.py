"""The embedded tasks."""

from agent_envs.envs.appworld.tasks import families as _families  # fills FAMILIES
from agent_envs.envs.appworld.tasks.catalogue import Catalogue, Task, scenario_of, task_of
from agent_envs.envs.appworld.tasks.goals import Goal, verdicts

__all__ = ["Catalogue", "Goal", "Task", "scenario_of", "task_of", "verdicts"]
del _families
