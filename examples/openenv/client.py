"""The classes that AutoEnv looks for, by names that it derives from ``openenv.yaml``."""

from openenv.core.env_server.types import Action, Observation
from openenv.core.generic_client import GenericEnvClient


class AgentHubAction(Action):
    """The model's reply, tags and all, or the bare action."""

    text: str


class AgentHubObservation(Observation):
    """What the environment shows, and the model's next prompt."""

    text: str
    prompt: str
    terminated: bool
    truncated: bool
    info: dict
    images: list[str] | None = None
    messages: list[dict] | None = None


class AgentHubEnv(GenericEnvClient):
    """Observations are dicts; actions dicts or :class:`AgentHubAction`."""
