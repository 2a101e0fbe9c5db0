"""Retrieval: indexes on disk, the server, the client of servers of all kinds."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.core import DataError
from agent_envs.core.errors import OptionError, RetrieverError
from agent_envs.retrieval import Document, indexing
from agent_envs.retrieval.documents import read_hit
from agent_envs.retrieval.encoder import SentenceEncoder
from agent_envs.retrieval.local import BM25Retriever, DenseRetriever
from agent_envs.retrieval.server import Limits
from agent_envs.retrieval.words import terms
from tests.serving import Served

WORDS = "alder birch cedar dogwood elm fir gum hazel iris juniper kelp larch maple nutmeg oak pine".split()


def corpus_file(path, count=40):
    lines = [
        json.dumps(
            {
                "id": f"d{i}",
                "contents": f'"{WORDS[i % 16]} {i}"\n{WORDS[i % 16]} beside {WORDS[i // 16]} tree',
            }
        )
        for i in range(count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# -- words and BM25 -----------------------------------------------------------------------------------


def test_terms_meet_over_case_accents_and_endings():
    assert terms("The Café's WALKED walks, walking") == ["cafe", "walk", "walk", "walk"]
    assert terms("Brontë") == terms("bronte")
    assert terms("of the and") == []


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_has_terms(text):
    assert all(1 <= len(term) <= 64 for term in terms(text))


def test_equal_scores_go_by_order_and_nothing_is_returned_twice():
    """F051: a small index gives what it has, each once; what shares no word is not found."""
    retriever = BM25Retriever([Document(str(i), "oak") for i in range(2)] + [Document("x", "pine")])
    (found,) = retriever.search(["oak"], 5)
    assert [hit.document.id for hit in found.hits] == ["0", "1"]
    assert retriever.search(["zebra", "", "..."], 3) == [((), "", False)] * 3
    assert retriever.search([], 3) == []
    assert retriever.search([" ".join(["oak"] * 300)], 1)[0].cut


# -- index folders ------------------------------------------------------------------------------------


def test_an_index_on_disk_finds_what_memory_finds(tmp_path):
    corpus = corpus_file(tmp_path / "c.jsonl")
    built = indexing.build(corpus, tmp_path / "i")
    assert built["documents"] == 40
    opened = indexing.open_index(tmp_path / "i")
    documents = list(opened.documents)
    queries = [*WORDS, "oak alder tree", "beside"]
    assert opened.search(queries, 5) == BM25Retriever(documents).search(queries, 5)
    assert (
        agent_envs.make_group("AgentEnv/Search-v0", 1, 1, retriever=str(tmp_path / "i")) is not None
    )


def test_a_broken_build_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    corpus = corpus_file(tmp_path / "c.jsonl")
    monkeypatch.setitem(indexing.SHARD, "bm25", 7)
    indexing.build(corpus, tmp_path / "whole")

    def stop(done, total):
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        indexing.build(corpus, tmp_path / "broken", progress=stop)
    with pytest.raises(RetrieverError, match="agent-envs retriever index"):
        indexing.open_index(tmp_path / "broken")
    kept = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "broken").glob("shard-*")}
    assert len(kept) == 3
    seen = []
    indexing.build(corpus, tmp_path / "broken", progress=lambda done, total: seen.append(done))
    assert seen[-1] == 40
    for name in ("keys", "starts", "documents", "impacts"):
        whole, again = (np.load(tmp_path / f / f"{name}.npy") for f in ("whole", "broken"))
        assert np.array_equal(whole, again)


def test_an_index_says_what_is_wrong(tmp_path):
    corpus = corpus_file(tmp_path / "c.jsonl")
    indexing.build(corpus, tmp_path / "i")
    other = corpus_file(tmp_path / "other.jsonl", 3)
    with pytest.raises(RetrieverError, match="holds another index"):
        indexing.build(other, tmp_path / "i")
    corpus_file(corpus, 39)
    with pytest.raises(DataError, match="changed since"):
        indexing.open_index(tmp_path / "i")
    with pytest.raises(RetrieverError, match="no complete index"):
        indexing.open_index(tmp_path)
    assert indexing.build(corpus, tmp_path / "i")["documents"] == 39  # as the message says
    assert len(indexing.open_index(tmp_path / "i").documents) == 39


def test_a_mended_corpus_is_indexed_from_the_start(tmp_path, monkeypatch):
    monkeypatch.setitem(indexing.SHARD, "bm25", 7)
    corpus = corpus_file(tmp_path / "c.jsonl")
    good = corpus.read_bytes()
    corpus.write_bytes(b'{"contents": "zebra"}\n' + good + b"{\n")
    with pytest.raises(DataError, match="document 41"):
        indexing.build(corpus, tmp_path / "i")
    assert list((tmp_path / "i").glob("shard-*"))
    corpus.write_bytes(good)
    indexing.build(corpus, tmp_path / "i")
    assert not indexing.open_index(tmp_path / "i").search(["zebra"], 1)[0].hits


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\n \n", "empty"), (b"[1]\n", "document 0"), (b'{"id": 1}\n', "without text"),
     (b'{"contents": "\xff"}\n', "UTF-8"), (b"{\n", "document 0")],
)  # fmt: skip
def test_a_bad_corpus_names_file_and_document(tmp_path, content, words):
    path = tmp_path / "c.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        indexing.build(path, tmp_path / "i")
    assert "c.jsonl" in str(caught.value)


class _Letters:
    """An encoder for tests: counts of the letters."""

    def encode(self, texts, *, query):
        vectors = np.array([[t.count(c) for c in "abcdefghij"] for t in texts], np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9), [
            len(t) > 50 for t in texts
        ]


def test_dense_search(tmp_path):
    """F051: faiss pads a short list with -1, which would be the last document."""
    pytest.importorskip("faiss", reason="needs the extra 'search'")
    documents = [Document("a", "aaa"), Document("b", "bbb")]
    index = indexing.flat_index(_Letters().encode(["aaa", "bbb"], query=False)[0])
    retriever = DenseRetriever(documents, _Letters(), index)
    found = retriever.search(["a", "b" * 60, "a"], 5)
    assert [[hit.document.id for hit in f.hits] for f in found] == [
        ["a", "b"],
        ["b", "a"],
        ["a", "b"],
    ]
    assert [f.cut for f in found] == [False, True, False]
    padding = type(
        "Index",
        (),
        {"ntotal": 2, "search": lambda self, v, k: (np.zeros((1, 2)), np.array([[0, -1]]))},
    )()
    assert len(DenseRetriever(documents, _Letters(), padding).search(["a"], 2)[0].hits) == 1
    with pytest.raises(RetrieverError, match="3 documents"):
        DenseRetriever([*documents, documents[0]], _Letters(), index)


def test_a_model_serves_one_thread_at_a_time(monkeypatch):
    """A tokenizer keeps how it cuts as a state: threads got each other's texts and errors."""
    busy = threading.Lock()

    class Model:
        max_seq_length, tokenizer = 1, property(lambda self: self)

        def encode(self, texts, **_):
            assert busy.acquire(blocking=False), "two threads at once"
            time.sleep(0.01)
            busy.release()
            return np.ones((len(texts), 2), np.float32)

    monkeypatch.setattr("agent_envs.retrieval.encoder._load", lambda model, device: Model())
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(SentenceEncoder("m").encode, ["abc"], query=True) for _ in range(8)]
        assert [call.result()[1] for call in calls] == [[True]] * 8


# -- replies of others --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"document": {"id": "1", "contents": '"T"\nx'}, "score": 0.5},
        {"id": 1, "contents": '"T"\nx'},
        {"document": {"title": "T", "text": "x"}},
        {"title": "T", "text": "x"},
        {"document": '"T"\nx'},
    ],
)
def test_shapes_of_documents(value):
    """F050."""
    assert read_hit(value).document.contents == '"T"\nx'


@pytest.mark.parametrize(
    "value", [None, 3, [], {}, {"document": None}, {"contents": ""}, {"text": None}]
)
def test_unknown_shapes_are_named(value):
    with pytest.raises(ValueError, match="document"):
        read_hit(value)


def test_numbers_and_texts_that_only_json_can_hold():
    found = read_hit({"document": {"id": "\ud800", "contents": "x\udfff"}, "score": 10**400})
    assert found == (Document("?", "x?"), None)


@contextmanager
def answering(reply):
    """A server whose ``reply(body, count)`` gives (status, bytes or pieces of them), or None to hang up."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            answer = reply(body, len(bodies))
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            self.send_response(status)
            whole = isinstance(content, bytes)
            self.send_header("content-length", str(len(content) if whole else 1000))
            self.end_headers()
            with suppress(ConnectionError):
                for piece in [content] if whole else content:
                    self.wfile.write(piece)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()


def remote(url, **options):
    pytest.importorskip("httpx", reason="needs the extra 'search'")
    from agent_envs.retrieval.remote import RemoteRetriever

    return RemoteRetriever(url, **{"timeout": 3.0, **options})


def results(body, document):
    queries = body.get("queries", [body.get("query")])
    return 200, json.dumps({"result": [[document(q)] for q in queries]}).encode()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("scores", [True, False])
def test_one_list_per_query(count, scores):
    """F052: any number of queries, with scores and without."""

    def document(query):
        bare = {"id": query, "contents": f"about {query}"}
        return {"document": bare, "score": 1.0} if scores else bare

    with answering(lambda body, n: results(body, document)) as (url, bodies):
        queries = [f"q{i}" for i in range(count)]
        found = remote(url).search(queries, 3)
        assert [f.hits[0].document.contents for f in found] == [f"about {q}" for q in queries]
        assert len(bodies) == bool(count)


def test_a_server_that_takes_one_query_at_a_time():
    def reply(body, count):
        if "query" not in body:
            return 422, b"{}"
        return results(body, lambda q: {"document": {"id": q, "contents": q}, "score": 1})

    with answering(reply) as (url, bodies):
        client = remote(url + "/retrieve")
        assert [f.hits[0].document.id for f in client.search(["a", "b", "a"], 2)] == ["a", "b", "a"]
        client.search(["c"], 2)
        assert [next(iter(body)) for body in bodies] == ["queries", "query", "query", "query"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (lambda body, n: (500, b"oops"), "HTTP 500"),
        (lambda body, n: (403, b""), "HTTP 403"),
        (lambda body, n: (200, b"<html>"), "no JSON"),
        (lambda body, n: (200, b"[]"), "no list under 'result'"),
        (lambda body, n: (200, b'{"result": [[], []]}'), "2 results for 1"),
        (lambda body, n: (200, b'{"result": [[{"score": 1}]]}'), "unknown shape"),
        (lambda body, n: (200, b"[" * 200_000), "no JSON"),
        (lambda body, n: (422, b'{"error": "topk"}'), "both forms.*422.*topk"),
        (lambda body, n: (200, (b"[" for _ in iter(lambda: time.sleep(0.2), 0))), "no whole answer"),
        (lambda body, n: None, "RemoteProtocolError|ReadError|disconnected"),
        (lambda body, n: time.sleep(3), "Timeout|no answer"),
    ],
)  # fmt: skip
def test_a_broken_server_is_a_defined_result_in_bounded_time(reply, words):
    with answering(reply) as (url, _):
        begun = time.monotonic()
        (found,) = remote(url, timeout=1.5).search(["a"], 3)
        assert time.monotonic() - begun < 6
        assert not found.hits
        assert re.search(words, found.error), found.error
        with pytest.raises(RetrieverError, match="agent-envs retriever serve"):
            remote(url, timeout=0.5).check()


def test_passing_trouble_is_tried_again():
    def reply(body, count):
        if count < 3:
            return 503, b""
        return results(body, lambda q: {"id": q, "contents": q})

    with answering(reply) as (url, bodies):
        assert not remote(url).search(["a"], 1)[0].error
        assert len(bodies) == 3


def test_an_absent_server_is_an_error_of_the_first_reset():
    pytest.importorskip("httpx", reason="needs the extra 'search'")
    begun = time.monotonic()
    group = agent_envs.make_group(
        "AgentEnv/Search-v0", 4, 8, retriever="http://127.0.0.1:9", timeout=0.3
    )
    _, infos = group.reset(seed=0)
    assert time.monotonic() - begun < 3  # not once for each replica
    for error in infos["error"]:
        assert "127.0.0.1:9/retrieve" in error
        assert "agent-envs retriever serve" in error
    group.close()


# -- our server ---------------------------------------------------------------------------------------


@contextmanager
def served(*words, port=0):
    pytest.importorskip("starlette", reason="needs the extra 'search'")
    pytest.importorskip("uvicorn", reason="needs the extra 'search'")
    options = (*words, "--port", str(port))
    with Served(*options, envs="", command=("retriever", "serve")) as server:
        yield server.url, server.process


def post(url, body, **headers):
    import httpx

    return httpx.post(
        url + "/retrieve",
        content=body if isinstance(body, bytes) else json.dumps(body),
        headers=headers,
    )


def test_the_server_speaks_both_forms_and_refuses_the_rest(tmp_path):
    indexing.build(corpus_file(tmp_path / "c.jsonl"), tmp_path / "i")
    with served("--index", str(tmp_path / "i"), "--max-topk", "5", "--token", "secret") as (url, _):
        import httpx

        auth = {"Authorization": "Bearer secret"}
        assert httpx.get(url + "/health").json()["status"] == "ok"
        assert post(url, {"query": "oak"}).status_code == 401
        assert (
            post(url, {"query": "oak"}, Authorization="Bearer secre\u00e9".encode()).status_code
            == 401
        )
        with pytest.raises(RetrieverError, match=r"401 .*a token is needed"):
            remote(url).check()
        assert "not the server's" in post(url, {"query": "oak"}, Authorization="Bearer secre").text
        one = post(url, {"query": "oak", "topk": 2, "return_scores": True}, **auth).json()["result"]
        assert len(one) == 1
        assert len(one[0]) == 2
        assert one[0][0]["document"]["id"] == "d14"
        many = post(url, {"queries": ["oak", "elm", "zebra"]}, **auth).json()["result"]
        assert [len(row) for row in many] == [2, 3, 0]
        assert many[0][0]["id"] == "d14"
        assert post(url, {"queries": []}, **auth).json() == {"result": []}
        for body in (b"{", b"[]", b'{"queries": "oak"}', b'{"query": 3}', b'{"query": "a", "topk": 6}',
                     b'{"query": "a", "topk": -1}', b'{"query": "a", "topk": true}', b"[" * 100_000,
                     b'{"query": "\\ud800"}'):  # fmt: skip
            response = post(url, body, **auth)
            assert response.status_code in (400, 422)
            assert response.json()["error"]
        assert post(url, b"x" * (9 << 20), **auth).status_code == 413
        client = remote(url, token="secret")
        client.check()
        assert client.search(["oak", "zebra"], 3) == [
            f._replace(hits=tuple(f.hits))
            for f in indexing.open_index(tmp_path / "i").search(["oak", "zebra"], 3)
        ]


def test_rollouts_survive_a_killed_server():
    """The server dies in mid-episode and comes back: errors are observed and counted, then all is well."""
    with served("--embedded", "bm25") as (url, process):
        port = int(url.rsplit(":", 1)[1])
        group = agent_envs.make_group(
            "AgentEnv/Search-v0", 2, 4, retriever=url, timeout=0.6, max_steps=6
        )
        local = agent_envs.make_group("AgentEnv/Search-v0", 2, 4, max_steps=6)
        action = ["<search>Voss painter</search>"] * 8
        group.reset(seed=3)
        local.reset(seed=3)
        assert list(group.step(action)[0]) == list(local.step(action)[0])
        process.kill()
        process.wait()
        seen, _, terminated, truncated, infos = group.step(action)
        assert all("The search failed" in text for text in seen)
        assert all(infos["search_error"])
        assert not terminated.any()
        assert not truncated.any()
    with served("--embedded", "bm25", port=port):
        seen, _, _, _, infos = group.step(action)
        assert not any(infos["search_error"])
        assert list(seen) == list(local.step(action)[0])
    group.close()


def test_what_no_request_could_get_is_refused_at_once():
    with pytest.raises(OptionError, match="topk 5 is above max_topk 4"):
        Limits(topk=5, max_topk=4)


def test_open_to_others_only_with_a_token():
    from typer.testing import CliRunner

    from agent_envs.cli.main import app

    result = CliRunner().invoke(
        app, ["retriever", "serve", "--embedded", "bm25", "--host", "0.0.0.0"]
    )
    assert isinstance(result.exception, OptionError)
    assert "--token" in str(result.exception)
    result = CliRunner().invoke(app, ["retriever", "serve"])
    assert "--index" in str(result.exception)


def test_the_index_command(tmp_path):
    from typer.testing import CliRunner

    from agent_envs.cli.main import app

    corpus = corpus_file(tmp_path / "c.jsonl")
    result = CliRunner().invoke(
        app, ["retriever", "index", str(corpus), "--out", str(tmp_path / "i"), "--json"]
    )
    assert json.loads(result.stdout)["documents"] == 40
