"""The ASGI application that ``openenv.yaml`` names; ``agent-envs serve`` does the same with workers."""

import os

from agent_envs_server.app import standalone
from agent_envs_server.settings import Settings

app = standalone(
    Settings(
        default_env=os.environ.get("AGENT_ENVS_DEFAULT", "AgentEnv/ALFWorld-v0"),
        token=os.environ.get("AGENT_ENVS_SERVER_TOKEN") or None,
    )
)


def main():
    """Serve this machine; another host needs a token, and ``agent-envs serve`` asks for it."""
    import uvicorn

    uvicorn.run(
        app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), ws="websockets-sansio"
    )


if __name__ == "__main__":
    main()
