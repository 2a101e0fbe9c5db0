"""An episode in the embedded world: the world here, the agent's code in an executor's process."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.appworld.api import Apps
from agent_envs.envs.appworld.episode import Brief, Report, Shown
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution import Executor, Limits, Session
from agent_envs.envs.appworld.store import Overlay
from agent_envs.envs.appworld.tasks import Task, verdicts

Answered = list[Any]  # of an API call: [value], or [status, message] where it was refused


class SimEpisode:
    """One task.

    A namespace cannot be copied, so what was executed is kept with the answers that the APIs gave: a copy
    executes the code once more against these answers, when it next needs its namespace. No API runs twice.
    """

    def __init__(self, task: Task, apps: Apps, executor: Executor, limits: Limits) -> None:
        self.task = task
        self._apps, self._executor, self._limits = apps, executor, limits
        self._db = Overlay(task.world)
        self._db.task = {"instruction": task.instruction, "task_id": task.id}
        self._session: Session | None = None
        self._done: list[tuple[str, list[Answered]]] = []  # what the namespace has seen
        self.completed = False
        self.calls = 0
        person = apps.call(self._db, task.supervisor, "supervisor", "show_profile", {})
        fields = ("first_name", "last_name", "email", "phone_number")
        self.brief = Brief(
            task.id, task.instruction, {name: str(person[name]) for name in fields},
            self._db.now.isoformat(), task.family.difficulty,
        )  # fmt: skip

    def execute(self, code: str) -> Shown:
        session = self._namespace()
        answers: list[Answered] = []

        def call(app: str, name: str, arguments: dict[str, Any]) -> Any:
            try:
                value = self._apps.call(self._db, self.task.supervisor, app, name, arguments)
            except ApiError as error:
                answers.append([error.status, error.message])
                raise
            answers.append([value])
            return value

        ran = session.run(code, call)
        self.calls = ran.calls
        # a namespace that was lost starts anew; what it had seen is of no use to a copy
        self._done = [] if ran.lost else [*self._done, (code, answers)]
        self.completed = self._completion() is not None
        return Shown(ran.output, ran.failed, ran.lost)

    def report(self) -> Report:
        completion = self._completion() or {}
        found = verdicts(
            self.task.goal, self._db.changes(), self._existing, completion.get("answer")
        )
        return Report(found, completion.get("status") == "success")

    def journal(self) -> Sequence[Any]:
        saved = None if self._session is None else self._session.snapshot()
        if saved is not None:
            return [self._db.snapshot(), base64.b64encode(saved).decode(), []]
        return [self._db.snapshot(), None, [[code, answers] for code, answers in self._done]]

    def replay(self, journal: Sequence[Any]) -> None:
        db, saved, done = journal
        self.close()
        task = self._db.task
        self._db = Overlay.restore(self.task.world, db)
        self._db.task = task
        self._done = [(str(code), list(answers)) for code, answers in done]
        if saved is not None:
            self._restore(base64.b64decode(saved, validate=True))
        self.completed = self._completion() is not None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- inside --------------------------------------------------------------------------------

    def _restore(self, saved: bytes) -> None:
        """The namespace as its executor saved it."""
        restore = getattr(self._namespace(), "restore", None)
        if restore is None:
            raise ValueError("its namespace was saved by another kind of executor (monty)")
        restore(saved)

    def _completion(self) -> Mapping[str, Any] | None:
        """What ``complete_task`` was told, once it was."""
        return next(iter(self._db.rows("supervisor.tasks")), None)

    def _existing(self, table: str, id: int) -> bool:  # noqa: A002
        return id in self.task.world.tables.get(table, {})

    def _namespace(self) -> Session:
        """The session, brought to where this episode is."""
        if self._session is None:
            world = self.task.world
            self._session = self._executor.session(
                now=self.brief.now, seed=keyed_seed(world.seed, self.task.supervisor),
                apps={app: self._apps.functions(app) for app in self._apps.names()},
                limits=self._limits,
            )  # fmt: skip
            for code, answers in self._done:
                self._session.run(code, _answering(answers))
        return self._session


def _answering(answers: Sequence[Answered]) -> Any:
    """Gives the recorded answers in their order."""
    left = iter(answers)

    def call(app: str, name: str, arguments: dict[str, Any]) -> Any:
        answer = next(left, [409, "this call was not made before"])
        if len(answer) == 2:
            raise ApiError(*answer)
        return answer[0]

    return call
