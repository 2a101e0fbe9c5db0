"""A server of its own process for tests, and a raw client for frames that the real one never sends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from tests.conftest import ROOT

SERVED = "tests.served:Test/Toy-v0,Test/Reuser-v0,Test/Stateless-v0,Test/Slow-v0,AgentEnv/ALFWorld-v0,AgentEnv/Sokoban-v0"


class Served:
    """``agent-envs serve`` (or another server's command) on a free port; ``with`` ends it."""

    def __init__(
        self,
        *options: str,
        envs: str = SERVED,
        command: tuple[str, ...] = ("serve",),
        **environment: str,
    ) -> None:
        self.log = ""
        # a file, not a pipe: nobody reads it until the end
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from agent_envs.cli import main; main()", *command, "--json",
             "--port", "0", *(("--envs", envs) if envs else ()), *options],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )  # fmt: skip
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError(self.log)
        self.started = json.loads(line)
        self.url = self.started["url"]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **headers: str) -> float:
        for line in self.get("/metrics", **headers)[1].splitlines():
            if line.startswith(f"agent_envs_{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def workers(self) -> list[int]:
        """Process ids of the workers that live now."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as file:
            return [int(pid) for pid in file.read().split()]

    def kill_worker(self) -> None:
        os.kill(self.workers()[0], signal.SIGKILL)

    def stop(self) -> str:
        """End the server; returns its log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.process.stdout.close()
        if not self._errors.closed:
            self._errors.seek(0)
            self.log = self._errors.read()
            self._errors.close()
        return self.log

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
