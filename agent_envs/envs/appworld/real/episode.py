"""One task of the real benchmark on a lent server."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.core.errors import ServerError
from agent_envs.envs.appworld.episode import Brief, Report, Shown, Verdict
from agent_envs.envs.appworld.real.pool import Pool
from agent_envs.envs.appworld.real.server import Server, WorldLost

_GRACE = 30.0  # seconds over the server's own limit: it shall be the one to say that time is up
_PERSON = ("first_name", "last_name", "email", "phone_number")
_FAILED = ("Execution failed.", "Syntax error in line", "Execution timed out")


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``/initialize`` is told; only fields that all versions know."""

    max_interactions: int = 1000
    timeout_seconds: int = 100
    random_seed: int = 100


class RealEpisode:
    """An episode whose world may be put aside: it is made again by replaying the code.

    Raises:
        ServerError: no server can be had; the message says how to start one.
    """

    def __init__(self, pool: Pool, task_id: str, settings: Settings) -> None:
        self._pool, self._task_id, self._settings = pool, task_id, settings
        self._codes: list[str] = []
        self.completed = False
        self.brief = self._in_world(lambda server: self._read_brief(server))

    def execute(self, code: str) -> Shown:
        output = self._in_world(lambda server: self._run(server, code))
        self._codes.append(code)
        self.completed = bool(self._in_world(lambda server: self._ask(server, "/task_completed")))
        return Shown(output, output.startswith(_FAILED))

    def report(self) -> Report:
        found = self._in_world(
            lambda server: self._ask(server, "/evaluate", suppress_errors=True, report=False)
        )
        return _report(found)

    def journal(self) -> Sequence[Any]:
        return list(self._codes)

    def replay(self, journal: Sequence[Any]) -> None:
        for code in journal:
            if not isinstance(code, str):
                raise ValueError("a journal of the real benchmark holds code only")
            self.execute(code)

    def close(self) -> None:
        self._pool.leave(self)

    # -- inside --------------------------------------------------------------------------------

    def _in_world(self, work: Any) -> Any:
        """Do ``work`` on a server that holds this world; once more on a renewed one if it is lost."""
        with self._pool.lent(self) as (server, fresh):
            try:
                return self._with(server, fresh, work)
            except WorldLost:  # another world, or a failure inside: a new world may do
                pass
            except ServerError:
                if not server.recover():
                    raise
            try:
                return self._with(server, True, work)
            except ServerError:  # it may hang: the next one to use it shall not wait for it
                server.recover()
                raise

    def _with(self, server: Server, fresh: bool, work: Any) -> Any:
        if fresh:
            self._opening = self._ask(
                server, "/initialize",
                experiment_name=f"agent-envs-{uuid.uuid4().hex}",
                max_interactions=self._settings.max_interactions,
                timeout_seconds=self._settings.timeout_seconds,
                random_seed=self._settings.random_seed,
            )  # fmt: skip
            for code in self._codes:
                self._run(server, code)
        return work(server)

    def _run(self, server: Server, code: str) -> str:
        return str(self._ask(server, "/execute", code=code))

    def _read_brief(self, server: Server) -> Brief:
        opening: Any = self._opening
        try:
            person = {name: str(opening["supervisor"][name]) for name in _PERSON}
            told, now = str(opening["instruction"]), str(opening["datetime"])
        except (KeyError, TypeError) as error:
            raise ServerError(
                f"/initialize of {server.url} does not answer as AppWorld 0.1.3 does: "
                f"{type(error).__name__}: {error}"
            ) from error
        return Brief(self._task_id, told, person, now)

    def _ask(self, server: Server, path: str, **fields: Any) -> Any:
        seconds = self._settings.timeout_seconds + _GRACE
        return server.ask(path, {"task_id": self._task_id, **fields}, seconds)


def _report(found: Any) -> Report:
    """What ``/evaluate`` says: passes and failures with labels no_op_pass and no_op_fail."""
    try:
        return Report(
            tuple(
                Verdict(str(one.get("requirement", "")), passed, one.get("label") == "no_op_pass")
                for passed, name in ((True, "passes"), (False, "failures"))
                for one in found[name]
            )
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ServerError(
            f"/evaluate does not answer as AppWorld 0.1.3 does ({type(error).__name__}: {error}): "
            f"{found!r:.200}"
        ) from error
