"""Fixtures: where the shared data lies, and a cache folder of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# one BLAS thread per process: two on busy cores are ten times slower
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.pop("ALFWORLD_DATA", None)
os.environ.pop("WEBSHOP_DATA", None)


def shared(relative: str) -> Path:
    """A path below ../shared; skips the test where it is absent."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"needs {path}, which is not here")
    return path


def load_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    os.environ["AGENT_ENVS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["AGENT_ENVS_CACHE"]


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 4,027 official games in their official layout."""
    script = shared("data/alfworld/unpack.py")
    folder = tmp_path_factory.mktemp("alfworld")
    subprocess.run([sys.executable, str(script), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def run_python():
    """Run code in a fresh interpreter; returns the finished process."""

    def run(code: str, *args: str, timeout: float = 120, **env: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", code, *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": path, **env},
            cwd=ROOT,
        )

    # the caller's own path stays: AGENT_ENVS_CONFORMANCE names modules on it
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return run
