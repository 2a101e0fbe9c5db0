"""What an app answers when it refuses a call."""

from __future__ import annotations


class ApiError(Exception):
    """A refused API call: ``status`` as in HTTP (401, 404, 409, 422), ``message`` for the agent."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return f"{self.status}: {self.message}"
