"""The real AppWorld benchmark, through servers that run in the user's own AppWorld environment.

AppWorld is never imported here and its protected parts are never read: only its server's HTTP protocol is
spoken (shared/design/APPWORLD.md, section 2).
"""

from agent_envs.envs.appworld.real.episode import RealEpisode
from agent_envs.envs.appworld.real.pool import Pool, pool_of
from agent_envs.envs.appworld.real.tasks import RealTasks

__all__ = ["Pool", "RealEpisode", "RealTasks", "pool_of"]
