"""vLLM's server mode over real HTTP: weights arrive, the server's replies are what is trained on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest

pytest.importorskip("trl", reason="needs the extra `train`")
pytest.importorskip("requests", reason="TRL's client needs requests (extra `dev`)")
torch = pytest.importorskip("torch")

from tests.conftest import ROOT
from tests.test_trl_processes import free_port
from tests.training import guessing_folder
from tests.vllm_stub import StubServer, flat, write_distribution

SECONDS, UPDATES = 120, 3


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """(model folder, folder of the stand-in for the package vllm)."""
    out = tmp_path_factory.mktemp("server")
    return guessing_folder(out), write_distribution(out / "site")


def run(parts, out, processes: int, overrides: dict):
    """(the server afterwards, what each process found)."""
    folder, site = parts
    server = StubServer(folder)
    config = {
        "run.updates": UPDATES,
        "rollout.max_completion_tokens": 5,
        "trl": {
            "use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server.url,
            "vllm_server_timeout": 10.0, "vllm_importance_sampling_mode": "token_truncate",
        },
        **overrides,
    }  # fmt: skip
    path = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
    shared = {
        **os.environ,
        "PYTHONPATH": path,
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    port, started = free_port(), []
    for rank in range(processes):
        job = {"folder": str(folder), "out": str(out), "config": config,
               "result": str(out / f"rank-{rank}.pt")}  # fmt: skip
        world = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
        log = (out / f"rank-{rank}.log").open("w")
        started.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.vllm_stub", json.dumps(job)],
                env={**shared, **(world if processes > 1 else {})}, stdout=log, stderr=log,
            )
        )  # fmt: skip
    try:
        end = time.monotonic() + SECONDS
        for rank, process in enumerate(started):
            code = process.wait(max(1.0, end - time.monotonic()))
            assert code == 0, (out / f"rank-{rank}.log").read_text()[-3000:]
    finally:
        for process in started:
            process.kill()
        server.close()
    assert server.refusals == []
    return server, [torch.load(out / f"rank-{rank}.pt") for rank in range(processes)]


def test_one_process(parts, tmp_path):
    server, (found,) = run(parts, tmp_path, 1, {})

    push = ["start", "update", "finish", "reset"]
    assert server.events[:5] == ["init", *push]
    assert [e for e in server.events if e != "completions"] == ["init", *push * UPDATES]
    weights = [*found["before"], found["after"]]
    for number, (pushed, own) in enumerate(zip(server.pushed, weights, strict=False)):
        assert torch.equal(pushed, own), f"push {number}"
        assert not torch.equal(own, weights[number + 1]), f"update {number} changed nothing"
    assert torch.equal(flat(server.model), found["before"][-1])

    assert server.events.count("completions") == found["turns"] > UPDATES
    assert Counter(found["samples"]) == Counter(server.answered)
    for asked in server.asked:
        assert (asked["n"], asked["temperature"], asked["max_tokens"]) == (1, 1.0, 5)
    for row in found["rows"]:  # the weights are the same, so are the probabilities
        assert row["sampling_logp_difference"] < 1e-4
        assert row["importance_ratio_max"] == pytest.approx(1, abs=1e-3)


def test_two_processes(parts, tmp_path):
    """TRL's client asks for all processes: they have different numbers of prompts, and of calls."""
    dynamic = {"rollout.dynamic": True, "rollout.max_rounds": 2, "rollout.groups": 6}
    evaluation = {"eval.every": 1, "eval.episodes": 6, "eval.temperature": 0.0}
    server, (first, second) = run(parts, tmp_path, 2, {**dynamic, **evaluation})

    assert server.events.count("update") == len(server.pushed) == UPDATES + 1  # one to evaluate
    for mine, other in zip(first["before"], second["before"], strict=True):
        assert torch.equal(mine, other)
        assert any(torch.equal(mine, pushed) for pushed in server.pushed)
    assert torch.equal(first["after"], second["after"])
    assert torch.equal(flat(server.model), first["after"])
    assert not torch.equal(first["before"][0], first["after"])

    assert len(first["samples"]) != len(second["samples"])
    trained, answered = Counter(first["samples"] + second["samples"]), Counter(server.answered)
    assert trained <= answered
    fillers = sum(n for (prompt, _), n in answered.items() if len(prompt) == 1)
    assert fillers > 0
    for row in first["rows"] + second["rows"]:
        assert row["sampling_logp_difference"] < 1e-4
    assert {asked["temperature"] for asked in server.asked} == {0.0, 1.0}
    assert len(first["evaluations"]) == len(second["evaluations"]) == UPDATES + 1
