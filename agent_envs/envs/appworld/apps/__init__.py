"""The apps, in the order in which their tables are seeded (later ones may read earlier ones')."""

from agent_envs.envs.appworld.apps.amazon import AMAZON
from agent_envs.envs.appworld.apps.api_docs import API_DOCS
from agent_envs.envs.appworld.apps.file_system import FILE_SYSTEM
from agent_envs.envs.appworld.apps.gmail import GMAIL
from agent_envs.envs.appworld.apps.phone import PHONE_APP
from agent_envs.envs.appworld.apps.simple_note import SIMPLE_NOTE
from agent_envs.envs.appworld.apps.splitwise import SPLITWISE
from agent_envs.envs.appworld.apps.spotify import SPOTIFY
from agent_envs.envs.appworld.apps.supervisor import SUPERVISOR
from agent_envs.envs.appworld.apps.todoist import TODOIST
from agent_envs.envs.appworld.apps.venmo import VENMO

APPS = (
    API_DOCS,
    SUPERVISOR,
    PHONE_APP,
    FILE_SYSTEM,
    AMAZON,
    SPOTIFY,
    VENMO,
    SPLITWISE,
    TODOIST,
    GMAIL,
    SIMPLE_NOTE,
)
