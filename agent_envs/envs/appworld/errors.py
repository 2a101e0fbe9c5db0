"""What an app answers when a request cannot be served."""

from __future__ import annotations


class ApiError(Exception):
    """An app refused a request.

    Attributes:
        status: HTTP status code (401, 404, 409, 422).
        message: what was wrong, for the agent to read.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
