"""What OpenEnv's tools ask over HTTP: health, schemas, metadata, tasks, and what is not offered here."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import gymnasium
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import agent_envs
from agent_envs.core.errors import OptionError
from agent_envs.core.tasks import TaskSet
from agent_envs.group import Definition
from agent_envs.group.shard import make_env
from agent_envs.group.wire import PATH, PROTOCOL_VERSION
from agent_envs.registration import env_class
from agent_envs_server import openenv_json
from agent_envs_server.refusals import Refusal, field
from agent_envs_server.session import CAPABILITIES

API_VERSION = "1.0.0"  # of OpenEnv's HTTP interface
MAX_BODY = 1 << 20  # bytes of a request; the largest one names a split and two numbers
MAX_TASKS = 10_000  # in one answer
_SPLIT_TYPES = {"train": "train", "test": "test"}  # OpenEnv knows these and "validation"
_STATELESS = (("/reset", "POST"), ("/step", "POST"), ("/state", "GET"))
_METHOD_NOT_FOUND, _PARSE_ERROR = -32601, -32700

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
ACTION_SCHEMA: dict[str, Any] = {
    # the titles Action, CallToolAction and ListToolsAction mean tools to clients: none of them here
    "title": "TextAction",
    "type": "object",
    "properties": {
        "text": {
            **_TEXT,
            "title": "Text",
            "description": "The model's reply, tags and all, or the bare action.",
        }
    },
    "required": ["text"],
}
OBSERVATION_SCHEMA: dict[str, Any] = {
    "title": "TextObservation",
    "type": "object",
    "properties": {
        "text": {**_TEXT, "description": "What the environment shows."},
        "prompt": {**_TEXT, "description": "The model's next prompt; empty at the end."},
        "terminated": _FLAG,
        "truncated": _FLAG,
        "info": {"type": "object"},
        "images": {"type": "array", "items": _TEXT, "description": "PNG data URLs."},
        "messages": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The prompt as chat messages, where it holds pictures.",
        },
    },
    "required": ["text", "prompt", "terminated", "truncated", "info"],
}
STATE_SCHEMA: dict[str, Any] = {
    "title": "TextState",
    "type": "object",
    "properties": {
        "episode_id": {"anyOf": [_TEXT, {"type": "null"}], "default": None},
        "step_count": {"type": "integer", "minimum": 0, "default": 0},
        "env": _TEXT,
        "seed": {"type": "integer"},
        "split": _TEXT,
        "task_id": _TEXT,
        "terminated": _FLAG,
        "truncated": _FLAG,
    },
}

Handler = Callable[[Any], Awaitable[Any]]


def mounts(ids: tuple[str, ...]) -> dict[str, str]:
    """Names below ``/envs/`` and the ids that they serve: ``Sokoban-v0`` for ``AgentEnv/Sokoban-v0``.

    Where two ids end alike, the first has the short name and the others go by their full id.
    """
    found: dict[str, str] = {}
    for env_id in ids:
        short = env_id.rpartition("/")[2]
        found[env_id if short in found else short] = env_id
    return found


def mcp_refusal(request: Any) -> dict[str, Any]:
    """JSON-RPC's answer to any request: there are no tools."""
    key = request.get("id") if isinstance(request, dict) else None
    message = "these environments have no MCP tools: play them by the WebSocket at /envs/NAME/ws"
    return {
        "jsonrpc": "2.0",
        "id": key if isinstance(key, str | int | float) else None,
        "error": {"code": _METHOD_NOT_FOUND, "message": message},
    }


class HttpError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Pages:
    """The routes of one mount, or of the root.

    Args:
        envs: ids by the name that routes and answers use.
        env_id: what is played here; None at a root without a default.
        prefix: the path of this mount.
    """

    def __init__(self, envs: Mapping[str, str], env_id: str | None, prefix: str = "") -> None:
        self._envs, self._env_id, self._prefix = envs, env_id, prefix
        self._by_name = {name.lower(): env_id for name, env_id in envs.items()}
        self._tasks: dict[str, TaskSet] = {}

    def routes(self) -> list[Route]:
        """All but ``/health``, which a mount adds and the root has anyway."""
        refused = [(p, m, self._stateless) for p, m in _STATELESS]
        return [
            Route(path, _answering(handler), methods=[method])
            for path, method, handler in (*self._offered(), *refused)
        ]

    def _offered(self) -> list[tuple[str, str, Handler]]:
        return [
            ("/schema", "GET", self._schema),
            ("/metadata", "GET", self._metadata),
            ("/openapi.json", "GET", self._openapi),
            ("/list_environments", "GET", self._list_environments),
            ("/{env}/splits", "GET", self._splits),
            ("/{env}/num_tasks", "POST", self._num_tasks),
            ("/{env}/tasks", "POST", self._list_tasks),
            ("/{env}/task", "POST", self._task),
            ("/{env}/task_range", "POST", self._task_range),
            ("/mcp", "POST", self._mcp),
        ]

    # -- about the environment -----------------------------------------------------------------

    async def _schema(self, request: Any) -> Any:
        self._played()
        return {
            "action": ACTION_SCHEMA,
            "observation": OBSERVATION_SCHEMA,
            "reset_observation": OBSERVATION_SCHEMA,
            "state": STATE_SCHEMA,
        }

    async def _metadata(self, request: Any) -> Any:
        env_id = self._played()
        kind = await run_in_threadpool(env_class, env_id)
        return {
            "name": env_id,
            "description": (inspect.getdoc(kind) or env_id).partition("\n\n")[0],
            "readme_content": None,
            "version": agent_envs.__version__,
            "author": None,
            "documentation_url": None,
            # beyond OpenEnv: whole groups of replicas by frames of our own
            "capabilities": {
                "group": {"path": PATH, "version": PROTOCOL_VERSION, "messages": list(CAPABILITIES)}
            },
        }

    async def _openapi(self, request: Any) -> Any:
        """Names what is offered, for tools that look for it; what is refused stays out."""
        self._played()
        answer = {"responses": {"200": {"description": "OK"}}}
        paths = {path: {method.lower(): answer} for path, method, _ in self._offered()} | {
            "/health": {"get": answer}
        }
        return {
            "openapi": "3.1.0",
            "info": {"title": self._env_id, "version": API_VERSION},
            "paths": paths,
        }

    # -- tasks ---------------------------------------------------------------------------------

    async def _list_environments(self, request: Any) -> Any:
        return list(self._envs)

    async def _splits(self, request: Any) -> Any:
        tasks = await self._tasks_of(request)
        return [
            {"name": split, "type": _SPLIT_TYPES.get(split, "validation")} for split in tasks.splits
        ]

    async def _num_tasks(self, request: Any) -> Any:
        tasks = await self._tasks_of(request)
        split = field(await _body(request), "split", str)
        return {"num_tasks": await run_in_threadpool(_count, tasks, split)}

    async def _list_tasks(self, request: Any) -> Any:
        tasks = await self._tasks_of(request)
        split = field(await _body(request), "split", str)
        count = await run_in_threadpool(_count, tasks, split)
        rows = await run_in_threadpool(_rows, tasks, split, 0, min(count, MAX_TASKS))
        return {"tasks": rows, "env_name": request.path_params["env"]}

    async def _task(self, request: Any) -> Any:
        tasks, body = await self._tasks_of(request), await _body(request)
        split, index = field(body, "split", str), field(body, "index", int)
        (row,) = await run_in_threadpool(_rows, tasks, split, index, index + 1)
        return {"task": row}

    async def _task_range(self, request: Any) -> Any:
        tasks, body = await self._tasks_of(request), await _body(request)
        split = field(body, "split", str)
        start, stop = (
            None if body.get(name) is None else field(body, name, int) for name in ("start", "stop")
        )
        if stop is None:
            stop = await run_in_threadpool(_count, tasks, split)
        return {"tasks": await run_in_threadpool(_rows, tasks, split, start or 0, stop)}

    # -- what is not offered ---------------------------------------------------------------------

    async def _mcp(self, request: Any) -> Any:
        try:
            return mcp_refusal(await _body(request))
        except (HttpError, Refusal) as error:
            return {
                "jsonrpc": "2.0",
                "id": None,
                "error": {"code": _PARSE_ERROR, "message": str(error)},
            }

    async def _stateless(self, request: Any) -> Any:
        """OpenEnv's own answer would be an environment that forgets everything between two requests."""
        raise HttpError(
            501,
            f"an episode needs a connection: WebSocket {self._prefix}/ws, which OpenEnv's clients use",
        )

    # -- inside --------------------------------------------------------------------------------

    def _played(self) -> str:
        if self._env_id is None:
            raise HttpError(404, no_default(self._envs))
        return self._env_id

    async def _tasks_of(self, request: Any) -> TaskSet:
        name = request.path_params["env"]
        env_id = self._by_name.get(name.lower())
        if env_id is None:
            raise HttpError(
                404, f"unknown environment {name!r:.80}; known: {', '.join(self._envs)}"
            )
        if env_id not in self._tasks:
            self._tasks[env_id] = await run_in_threadpool(_task_set, env_id)
        return self._tasks[env_id]


def no_default(envs: Mapping[str, str]) -> str:
    """What to do where no environment was named."""
    paths = ", ".join(f"/envs/{name}" for name in envs)
    return f"no environment is served at the root (--default-env names one); there are {paths}"


def _answering(handler: Handler) -> Handler:
    """An endpoint: values become JSON, errors ``{"detail": ...}`` with their status."""

    async def endpoint(request: Any) -> Any:
        try:
            return Response(
                openenv_json.write(await handler(request)), media_type="application/json"
            )
        except HttpError as error:
            return JSONResponse({"detail": error.detail}, error.status)
        except Refusal as refusal:  # a body that is no JSON, or lacks a member
            return JSONResponse({"detail": refusal.message}, 422)

    return endpoint


async def _body(request: Any) -> dict[str, Any]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise HttpError(413, f"a request holds at most {MAX_BODY} bytes")
    body = openenv_json.read(data)
    if not isinstance(body, dict):
        raise HttpError(422, f"the body must be an object, got {type(body).__name__}")
    return body


def _task_set(env_id: str) -> TaskSet:
    try:
        env = make_env(Definition(gymnasium.spec(env_id)))
    except Exception as error:
        raise HttpError(501, f"{env_id} has no tasks here: {error}") from error
    env.close()
    return env.tasks


def _count(tasks: TaskSet, split: str) -> int:
    if split not in tasks.splits:
        raise HttpError(400, f"unknown split {split!r:.80}; valid: {', '.join(tasks.splits)}")
    count = tasks.count(split)
    if count is None:
        raise HttpError(501, f"split {split} is endless: every index from 0 on is a task")
    return count


def _rows(tasks: TaskSet, split: str, start: int, stop: int) -> list[dict[str, Any]]:
    """Tasks ``start`` to ``stop - 1``."""
    if stop - start > MAX_TASKS:
        raise HttpError(400, f"at most {MAX_TASKS} tasks at a time")
    try:
        for index in {start, max(start, stop - 1)}:
            tasks.check_index(split, index)
        return [
            {"id": tasks.task_id(split, i), "index": i, "split": split} for i in range(start, stop)
        ]
    except OptionError as error:
        raise HttpError(400, f"Invalid task index: {error}") from None
