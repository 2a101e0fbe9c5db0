"""The retrieval server: both request forms in use, all waiting queries searched in one batch."""

from __future__ import annotations

import asyncio
import gc
import hmac
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_envs.core.errors import MissingExtra, OptionError, positive
from agent_envs.core.sockets import listen, url_of
from agent_envs.retrieval.documents import Found, Retriever

logger = logging.getLogger("agent_envs.retrieval.server")
_SWITCH = 0.0005  # seconds; by default a search keeps the event loop waiting for ten times as long


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Args:
        topk: documents per query where the request names none.
        max_topk: the most that a query gets.
        max_queries: queries in a request.
        max_batch: queries that are searched together.
        max_body: bytes of a request.
    """

    topk: int = 3
    max_topk: int = 100
    max_queries: int = 1024
    max_batch: int = 256
    max_body: int = 8 << 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            positive(name, value)
        if self.topk > self.max_topk:
            raise OptionError(f"topk {self.topk} is above max_topk {self.max_topk}")


class _Refused(Exception):
    """A request that cannot be answered: HTTP status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Batcher:
    """Queries that arrive while a search runs are searched together by the next one."""

    def __init__(self, retriever: Retriever, max_batch: int) -> None:
        self._retriever, self._max_batch = retriever, max_batch
        self._waiting: list[tuple[str, int, asyncio.Future[Found]]] = []
        self._running: asyncio.Task[None] | None = None

    async def search(self, queries: list[str], topk: int) -> list[Found]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Found]] = [loop.create_future() for _ in queries]
        self._waiting += [(q, topk, f) for q, f in zip(queries, futures, strict=True)]
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run())
        return list(await asyncio.gather(*futures))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._waiting[: self._max_batch]
            del self._waiting[: len(batch)]
            most = max(topk for _, topk, _ in batch)
            call = partial(self._retriever.search, [query for query, _, _ in batch], most)
            try:
                found = await loop.run_in_executor(None, call)
            except Exception as error:
                logger.exception("a search failed")
                found = [Found(error=f"{type(error).__name__}: {error}")] * len(batch)
            for (_, topk, future), result in zip(batch, found, strict=True):
                if not future.done():  # its client may have gone
                    future.set_result(result._replace(hits=result.hits[:topk]))


def make_app(
    retriever: Retriever, *, limits: Limits = Limits(), token: str | None = None, about: str = ""
) -> Any:
    """The ASGI application: ``POST /retrieve`` and ``GET /health``.

    Args:
        token: demanded as ``Authorization: Bearer`` where it is given.
        about: what ``/health`` says of the index.

    Raises:
        MissingExtra: starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("the retrieval server", "search") from error
    batcher = Batcher(retriever, limits.max_batch)

    async def retrieve(request: Any) -> Any:
        try:
            _check_token(request.headers.get("authorization", ""), token)
            body = await _body(request, limits.max_body)
            queries, topk, scores = read_request(body, limits)
            found = await batcher.search(queries, topk)
            failed = next((item.error for item in found if item.error), "")
            if failed:
                raise _Refused(500, failed)
        except _Refused as error:
            return JSONResponse({"error": error.why}, status_code=error.status)
        return JSONResponse({"result": [_reply(item, scores) for item in found]})

    async def health(request: Any) -> Any:
        return JSONResponse({"status": "ok", "index": about})

    return Starlette(
        routes=[
            Route("/retrieve", retrieve, methods=["POST"]),
            Route("/health", health, methods=["GET"]),
        ]
    )


def read_request(body: bytes, limits: Limits) -> tuple[list[str], int, bool]:
    """Queries, documents per query, and whether scores are wanted, from either form of a request."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(400, f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Refused(422, "the body must be an object with 'queries' (a list) or 'query' (text)")
    queries = [value["query"]] if "query" in value else value.get("queries")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Refused(422, "give 'queries' (a list of texts) or 'query' (a text)")
    if any("\ud800" <= c <= "\udfff" for query in queries for c in query if not c.isascii()):
        raise _Refused(422, "a query holds half a surrogate pair")  # would fail the whole batch
    if len(queries) > limits.max_queries:
        raise _Refused(422, f"{len(queries)} queries; at most {limits.max_queries} in a request")
    topk = value.get("topk") or limits.topk
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= limits.max_topk:
        raise _Refused(422, f"topk must be an integer from 1 to {limits.max_topk}, got {topk!r}")
    return queries, topk, value.get("return_scores") is True


def serve(app: Any, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Run until interrupted; ``ready`` gets the URL once connections are accepted (port 0: any free one).

    Raises:
        OptionError: the port is taken or the host is not this machine's.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("the retrieval server", "search") from error
    listener = listen(host, port)
    ready(url_of(listener))
    sys.setswitchinterval(_SWITCH)
    gc.collect()
    gc.freeze()  # the corpus stays: walking over it would hold up all clients at once
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


def _check_token(header: str, token: str | None) -> None:
    wanted = f"Bearer {token}".encode()
    if token is None or hmac.compare_digest(header.encode("utf-8", "replace"), wanted):
        return
    if header.startswith("Bearer "):
        raise _Refused(401, "this token is not the server's")
    raise _Refused(401, "a token is needed: Authorization: Bearer TOKEN")


async def _body(request: Any, limit: int) -> bytes:
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > limit:
            raise _Refused(413, f"the body is longer than {limit} bytes")
    return bytes(found)


def _reply(found: Found, scores: bool) -> list[dict[str, Any]]:
    documents = [hit.document._asdict() for hit in found.hits]
    if not scores:
        return documents
    return [
        {"document": document, "score": hit.score}
        for document, hit in zip(documents, found.hits, strict=True)
    ]
