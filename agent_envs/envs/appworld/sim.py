"""An episode in the embedded world: the world here, the agent's code in an executor's process."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.appworld.api import Apps
from agent_envs.envs.appworld.episode import Brief, Report, Shown
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution import Executor, Limits, Session
from agent_envs.envs.appworld.store import Overlay
from agent_envs.envs.appworld.tasks import Task, verdicts

_FORGOT = "All variables of earlier steps are lost: they could not be made again in this copy.\n"
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
        # a namespace: what it began with (its clock; its content, where that was saved), and since then
        self._saved: bytes | None = None
        self._done: list[tuple[str, bytes]] = []  # code and its answers, packed: they can be many
        self.completed = False
        person = apps.call(self._db, task.supervisor, "supervisor", "show_profile", {})
        fields = ("first_name", "last_name", "email", "phone_number")
        self.brief = Brief(
            task.id, task.instruction, {name: str(person[name]) for name in fields},
            self._db.now.isoformat(), task.family.difficulty,
        )  # fmt: skip
        self._began = self.brief.now

    def execute(self, code: str) -> Shown:
        session, forgot = self._namespace()
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
        if ran.lost:
            self._forget()
        else:
            self._done.append((code, _packed(answers)))
        self.completed = self._completion() is not None
        return Shown(forgot + ran.output, ran.failed, ran.lost or bool(forgot))

    def report(self) -> Report:
        completion = self._completion() or {}
        found = verdicts(
            self.task.goal, self._db.changes(), self._existing, completion.get("answer")
        )
        return Report(found, completion.get("status") == "success")

    def journal(self) -> Sequence[Any]:
        saved = None if self._session is None else self._session.snapshot()
        done = [] if saved is not None else [[code, _text(answers)] for code, answers in self._done]
        saved = self._saved if saved is None else saved
        text = None if saved is None else _text(saved)
        return [self.task.world.brand, self._db.snapshot(), text, done, self._began]

    def replay(self, journal: Sequence[Any]) -> None:
        brand, db, saved, done, began = journal
        if brand != self.task.world.brand:
            raise ValueError(f"it is of brand {brand!r}, this is {self.task.world.brand!r}")
        self.close()
        task = self._db.task
        self._db = Overlay.restore(self.task.world, db)
        self._db.task = task
        self._done = [(str(code), _bytes(answers)) for code, answers in done]
        self._began = str(began)
        self._saved = None if saved is None else _bytes(saved)
        if saved is not None:
            self._namespace()  # raises where it is another executor's
        self.completed = self._completion() is not None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- inside --------------------------------------------------------------------------------

    def _completion(self) -> Mapping[str, Any] | None:
        """What ``complete_task`` was told, once it was."""
        return next(iter(self._db.rows("supervisor.tasks")), None)

    def _existing(self, table: str, id: int) -> bool:  # noqa: A002
        return id in self.task.world.tables.get(table, {})

    def _forget(self) -> None:
        """The namespace is lost: this episode and its copies go on with a new one."""
        self.close()
        self._saved, self._done, self._began = None, [], self._db.now.isoformat()

    def _namespace(self) -> tuple[Session, str]:
        """The session, brought to where this episode is; and a sentence where that did not work."""
        if self._session is not None:
            return self._session, ""
        self._session = session = self._new_session()
        if self._saved is not None:
            restore = getattr(session, "restore", None)
            if restore is None:
                raise ValueError("its namespace was saved by another kind of executor (monty)")
            restore(self._saved)
        for code, answers in self._done:
            if session.run(code, _answering(_unpacked(answers))).lost:
                self._forget()
                self._session = self._new_session()
                return self._session, _FORGOT
        return session, ""

    def _new_session(self) -> Session:
        return self._executor.session(
            now=self._began, seed=keyed_seed(self.task.world.seed, self.task.supervisor),
            apps={app: self._apps.functions(app) for app in self._apps.names()},
            limits=self._limits,
        )  # fmt: skip


def _packed(answers: list[Answered]) -> bytes:
    return zlib.compress(json.dumps(answers).encode(), 1)


def _unpacked(packed: bytes) -> list[Answered]:
    return list(json.loads(zlib.decompress(packed)))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _answering(answers: Sequence[Answered]) -> Any:
    """Gives the recorded answers in their order."""
    left = iter(answers)

    def call(app: str, name: str, arguments: dict[str, Any]) -> Any:
        answer = next(left, [409, "this call was not made before"])
        if len(answer) == 2:
            raise ApiError(*answer)
        return answer[0]

    return call
