"""Client of a retrieval server, in both forms in use (Search-R1's and SkyRL-gym's)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_envs.core.errors import MissingExtra, RetrieverError
from agent_envs.retrieval.documents import Found, Hit, read_hit

logger = logging.getLogger("agent_envs.retrieval")

START_COMMAND = "agent-envs retriever serve --index DIR --port PORT"
_RETRIED = frozenset((429, 500, 502, 503, 504))
_OTHER_FORM = frozenset((400, 404, 405, 415, 422))
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 1.0
_SHOWN = 200  # bytes of a refusal


class _NoAnswer(Exception):
    """What went wrong with a request, in words."""


class RemoteRetriever:
    """All queries of a call in one request over a connection that is kept.

    A server that is down, slow or broken gives :class:`Found` with ``error``, never an exception, and costs a
    call at most ``timeout`` seconds, retries included.

    Args:
        url: of the server, with or without ``/retrieve``.
        timeout: seconds for one call of :meth:`search`.
        token: sent as ``Authorization: Bearer``.

    Raises:
        MissingExtra: httpx is not installed.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, token: str | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("a remote retriever", "search") from error
        self.url = url.rstrip("/").removesuffix("/retrieve") + "/retrieve"
        self._timeout, self._single, self._refusal = timeout, False, ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, trust_env=False)
        self._errors: tuple[type[Exception], ...] = (httpx.HTTPError, httpx.InvalidURL)

    def check(self) -> None:
        """Ask one question; a Search-R1 server has no ``/health``."""
        found = self.search(["ready?"], 1)[0]
        if found.error:
            raise RetrieverError(
                f"no retriever at {self.url}: {found.error}; start one: {START_COMMAND}"
            )

    def search(self, queries: Sequence[str], topk: int) -> list[Found]:
        different = list(dict.fromkeys(queries))
        known: dict[str, Found] = {}
        deadline = time.monotonic() + self._timeout
        try:
            for batch, rows in self._ask(different, topk, deadline):
                known.update(zip(batch, (_read(row, topk) for row in rows), strict=True))
        except _NoAnswer as error:
            logger.warning("search failed at %s: %s", self.url, error)
            failed = Found(error=str(error))
            known.update((query, failed) for query in different if query not in known)
        return [known[query] for query in queries]

    def _ask(
        self, queries: list[str], topk: int, deadline: float
    ) -> Iterator[tuple[list[str], list[Any]]]:
        """Batches of queries with their replies: all at once, or one by one where the server wants that."""
        if not queries:
            return
        settings = {"topk": topk, "return_scores": True}
        if not self._single:
            reply = self._post({"queries": queries, **settings}, deadline)
            if reply is not None:
                yield queries, _rows(reply, len(queries))
                return
            self._single = True
        for query in queries:
            reply = self._post({"query": query, **settings}, deadline)
            if reply is None:
                self._single = False  # perhaps it was no question of form: begin anew next time
                raise _NoAnswer(f"it refuses both forms of a request: {self._refusal}")
            yield [query], _rows(reply, 1)

    def _post(self, body: Mapping[str, Any], deadline: float) -> Any:
        """The reply's JSON; None where the server does not take this form."""
        wait, reason = _FIRST_WAIT, f"no answer within {self._timeout:g} s"
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _NoAnswer(reason)
            try:
                status, content = self._exchange(body, deadline)
            except self._errors as error:
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                if status == 200:
                    return _json(content)
                reason = f"HTTP {status}"
                if status in _OTHER_FORM:
                    self._refusal = f"{reason} {content[:_SHOWN].decode('utf-8', 'replace')}"
                    return None
                if status not in _RETRIED:
                    raise _NoAnswer(reason)
            if time.monotonic() + wait >= deadline:
                raise _NoAnswer(reason)
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _exchange(self, body: Mapping[str, Any], deadline: float) -> tuple[int, bytes]:
        """Status and content of one request."""
        content = bytearray()
        left = deadline - time.monotonic()
        with self._client.stream("POST", self.url, json=body, timeout=left) as response:
            for piece in response.iter_bytes():
                content += piece
                # httpx limits each read alone: a server that drips would keep the call for ever
                if time.monotonic() > deadline:
                    raise _NoAnswer(f"no whole answer within {self._timeout:g} s")
        return response.status_code, bytes(content)

    def close(self) -> None:
        self._client.close()


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _NoAnswer(f"the reply is no JSON ({error})") from error


def _rows(reply: Any, count: int) -> list[Any]:
    """One list of documents per query (FIELD_CASES F052)."""
    result = reply.get("result") if isinstance(reply, Mapping) else None
    if not isinstance(result, list):
        raise _NoAnswer("the reply has no list under 'result'")
    if count == 1 and (not result or not isinstance(result[0], list)):
        result = [result]
    if len(result) != count or not all(isinstance(row, list) for row in result):
        raise _NoAnswer(f"{len(result)} results for {count} queries")
    return result


def _read(row: list[Any], topk: int) -> Found:
    hits: dict[str, Hit] = {}  # by text: some servers pad with the last document (F051)
    try:
        for value in row:
            hit = read_hit(value)
            hits.setdefault(hit.document.contents, hit)
    except ValueError as error:
        return Found(error=f"a reply of an unknown shape: {error}")
    return Found(tuple(hits.values())[:topk])
