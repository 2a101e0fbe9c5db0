"""``agent-envs doctor`` says what is wrong and never breaks itself."""

from __future__ import annotations

import json
import socket
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from agent_envs.cli import doctor
from agent_envs.cli.main import app
from agent_envs.registration import BUILT_IN

runner = CliRunner()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No subprocess that imports torch."""
    real = doctor.importlib.util.find_spec
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name == "torch" else real(name)
    )


def findings(*arguments: str, code: int | None = None) -> dict[str, list[dict]]:
    result = runner.invoke(app, ["doctor", "--json", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    if code is not None:
        assert result.exit_code == code, result.output
    found: dict[str, list[dict]] = {}
    for one in json.loads(result.output)["findings"]:
        assert one["state"] in ("ok", "note", "problem")
        assert "\n" not in one["text"]
        found.setdefault(one["topic"], []).append(one)
    return found


def test_it_looks_at_everything():
    found = findings()
    assert {"python", "environment", "cpu", "gpu", "disk", "cache", "port"} <= found.keys()
    assert len(found["environment"]) == len(BUILT_IN)
    plain = runner.invoke(app, ["doctor"])
    assert "ALFWorld" in plain.output


def test_problems_are_an_exit_code(monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", "/nowhere/at all")
    found = findings(code=1)
    assert "/nowhere/at all" in found["data"][0]["text"]


@pytest.mark.parametrize("inside", ["", "deeper/down"])
def test_a_file_in_the_place_of_the_cache(tmp_path, monkeypatch, inside):
    file = tmp_path / "cache"
    file.write_text("")
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(file / inside))
    (cache,) = findings(code=1)["cache"]
    assert cache["state"] == "problem"
    assert f"{file} is a file" in cache["text"]


def test_what_a_check_found_before_it_broke_is_told_in_lines(monkeypatch):
    def _odd():
        yield doctor.Finding("first", "ok", "two\nlines")
        raise RuntimeError("more\nlines")

    monkeypatch.setattr(doctor, "CHECKS", (_odd,))
    found = findings(code=1)  # which looks for line ends
    assert found["first"][0]["text"] == "two lines"
    assert found["odd"][0]["text"].endswith("RuntimeError: more lines")


def test_no_home(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "AGENT_ENVS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("none")))
    assert findings()["cache"]


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "cache"))

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    (cache,) = findings(code=1)["cache"]
    assert cache["state"] == "problem"
    assert "AGENT_ENVS_CACHE" in cache["text"]


def test_a_cache_that_is_a_file(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_text("x")
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(path / "below"))
    assert findings()["cache"]


def test_a_taken_port(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(doctor, "PORT", listener.getsockname()[1])
        (port,) = findings()["port"]
    assert port["state"] == "note"
    assert "--port 0" in port["text"]


def test_a_check_that_breaks_is_a_finding(monkeypatch):
    def broken():
        raise MemoryError("no room")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (broken, *doctor.CHECKS))
    found = findings(code=1)
    assert "MemoryError: no room" in found["broken"][0]["text"]
    assert found["python"]


REQUIRES = [
    "gymnasium<2,>=1.2",
    "absent-thing>=3",
    "rich>=999",
    'starlette>=0.99; extra == "server"',  # outside, but the extra isn't installed: no problem
    'not-there>=1; extra == "server"',
    'other (<2) ; (sys_platform != "win32") and extra == "odd"',
    "!!!",
]


def test_versions_against_their_ranges(monkeypatch):
    installed = {
        "agent-envs": "0.1",
        "gymnasium": "1.4.0",
        "rich": "13.0",
        "starlette": "0.41",
        "other": "2.0",
    }

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: REQUIRES)
    found = findings(code=1)
    states = {one["text"].split()[0]: one["state"] for one in found["package"]}
    assert states == {"gymnasium": "ok", "absent-thing": "problem", "rich": "problem"}
    extras = {one["text"].partition(":")[0]: one for one in found["extra"]}
    assert extras["server"]["state"] == "note"
    assert "agent-envs[server]" in extras["server"]["text"]
    assert extras["odd"]["state"] == ("problem" if sys.platform != "win32" else "ok")


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.4.0", ">=1.2,<2", True),
        ("2", ">=1.2,<2", False),
        ("2.0", "<2", False),
        ("2.13.0+cpu", ">=2.6", True),
        ("1.16.3", ">=1.16, <1.17", True),
        ("1.17", ">=1.16, <1.17", False),
        ("3.8.4", "==3.8.*", True),
        ("3.9", "==3.8.*", False),
        ("1.5", "~=1.4", True),
        ("2.0", "~=1.4", False),
        ("1.0", "!=1.0", False),
        ("1.0.1", "!=1.0", True),
        ("1.0.1", "!=1.0.*", False),
        ("1.0.1", "==1.0", False),
        ("1.0", "==1.0.0", True),
        ("1.0", "", True),
        ("1.0rc1", ">=1.0", True),
        ("strange", ">=1", False),
    ],
)
def test_ranges(version, wanted, fits):
    assert doctor._within(version, wanted) is fits


def test_a_torch_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())

    def run(*_, **__):
        return doctor.subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: libcudart")

    monkeypatch.setattr(doctor.subprocess, "run", run)
    (gpu,) = findings(code=1)["gpu"]
    assert gpu == {
        "topic": "gpu",
        "state": "problem",
        "text": "torch cannot be used: ImportError: libcudart",
    }


def test_the_module_is_the_command(run_python):
    assert "doctor" in run_python("import sys; sys.argv = ['x', '--help']\nimport runpy\n"
                                  "try: runpy.run_module('agent_envs', run_name='__main__')\n"
                                  "except SystemExit: pass").stdout  # fmt: skip
