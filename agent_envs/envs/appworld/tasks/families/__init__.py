"""All families; importing this fills :data:`FAMILIES`."""

from agent_envs.envs.appworld.tasks.families import (
    bills,
    files,
    mail,
    music,
    notes,
    payments,
    phone,
    shop,
    todo,
)

__all__ = ["bills", "files", "mail", "music", "notes", "payments", "phone", "shop", "todo"]
