"""``doctor``: what this machine and installation can do, one line a finding. Nothing is changed or sent."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import gymnasium
import typer
from rich.markup import escape

import agent_envs
from agent_envs.cli.common import Json, out, print_json
from agent_envs.core.env import AgentEnv
from agent_envs.core.errors import MissingExtra
from agent_envs.core.files import cache_dir
from agent_envs.core.machine import available_ram, cpu_flags, cpu_has_bfloat16
from agent_envs.registration import BUILT_IN

TESTED = ((3, 11), (3, 13))  # first and last minor version of Python
PORT = 8000  # where `agent-envs serve` listens unless told otherwise
ROOM = 2 << 30  # bytes that a first training run likes to have
_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "problem": "[red]problem[/]"}
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. ``state``: ok, note (works, but something is absent or slow) or problem."""

    topic: str
    state: str
    text: str


def doctor(as_json: Json = False) -> None:
    """Check this installation: versions, extras, data, hardware, ports, room, rights.

    Exit code 1 where something is wrong, 0 where all is well or only absent. Nothing leaves the machine.
    """
    findings = [finding for check in CHECKS for finding in _run(check)]
    if as_json:
        print_json({"version": agent_envs.__version__, "findings": [asdict(f) for f in findings]})
    else:
        for finding in findings:
            line = f"{_MARKS[finding.state]} [bold]{finding.topic}[/] {escape(finding.text)}"
            out.print(line, highlight=False, soft_wrap=True)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def _run(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """A check that breaks is a finding itself, after what it found before; each is one line."""
    found: list[Finding] = []
    try:
        for finding in check():
            found.append(finding)
    except Exception as error:
        name = check.__name__.strip("_").replace("_", " ")
        why = f"could not be checked: {type(error).__name__}: {error}"
        found.append(Finding(name, "problem", why))
    return [
        replace(finding, text=" ".join(map(str.strip, finding.text.splitlines())))
        for finding in found
    ]


def _python() -> Iterator[Finding]:
    found = sys.version_info[:2]
    where = f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    first, last = (".".join(map(str, one)) for one in TESTED)
    if TESTED[0] <= found <= TESTED[1]:
        yield Finding("python", "ok", where)
    else:
        yield Finding("python", "note", f"{where}; tested from {first} to {last}")


def _packages() -> Iterator[Finding]:
    """What the core needs, against the ranges that it was made for."""
    if _installed("agent-envs") is None:
        why = "agent-envs runs from a source tree, so versions are not checked: pip install -e ."
        yield Finding("packages", "note", why)
    for name, wanted, extra in _requirements():
        if not extra:
            installed = _installed(name)
            if installed is None:
                yield Finding(
                    "package", "problem", f"{name} is missing: pip install '{name}{wanted}'"
                )
            elif not _within(installed, wanted):
                text = f"{name} {installed} is outside {wanted}: pip install '{name}{wanted}'"
                yield Finding("package", "problem", text)
            else:
                yield Finding("package", "ok", f"{name} {installed} ({wanted})")


def _extras() -> Iterator[Finding]:
    """Which extras are whole, and how to get the others."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, wanted, extra in _requirements():
        if extra:
            parts.setdefault(extra, []).append((name, wanted))
    for extra, needed in sorted(parts.items()):
        missing = [name for name, _ in needed if _installed(name) is None]
        outside = [
            f"{name} {version} (wants {wanted})"
            for name, wanted in needed
            if (version := _installed(name)) is not None and not _within(version, wanted)
        ]
        command = f"pip install 'agent-envs[{extra}]'"
        if missing:  # not installed, so that a part in another version disturbs nobody
            yield Finding("extra", "note", f"{extra}: without {', '.join(missing)}; {command}")
        elif outside:
            yield Finding("extra", "problem", f"{extra}: {', '.join(outside)}: {command}")
        else:
            yield Finding("extra", "ok", extra)


def _environments() -> Iterator[Finding]:
    """Where each environment's tasks come from as things stand here."""
    for env_id in BUILT_IN:
        try:
            env: AgentEnv = gymnasium.make(env_id).unwrapped  # type: ignore[assignment]
            tasks = env.tasks
            counts = ", ".join(
                f"{split} {'endless' if tasks.count(split) is None else tasks.count(split)}"
                for split in tasks.splits
            )
            env.close()
            yield Finding("environment", "ok", f"{env_id}: {tasks.source} data ({counts})")
        except MissingExtra as error:
            yield Finding("environment", "note", f"{env_id}: {error}")
        except Exception as error:
            yield Finding("environment", "problem", f"{env_id}: {type(error).__name__}: {error}")
    for variable in ("ALFWORLD_DATA", "WEBSHOP_DATA", "APPWORLD_ROOT"):
        folder = os.environ.get(variable)
        if folder and not Path(folder).is_dir():
            yield Finding(
                "data", "problem", f"{variable}={folder} is no folder: set it right or unset it"
            )
        elif folder:
            yield Finding("data", "ok", f"{variable}={folder}")


def _hardware() -> Iterator[Finding]:
    """Processors, and the number format that training takes by default."""
    fast = sorted(cpu_flags() & {"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    dtype = "bfloat16" if cpu_has_bfloat16() else "float32"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    features = f" ({', '.join(fast)})" if fast else ""
    yield Finding("cpu", "ok", f"{cores} cores{features}; models on it run in {dtype}")
    if importlib.util.find_spec("torch") is None:
        yield Finding("gpu", "note", "torch is not installed, so none was looked for")
        return
    code = (
        "import json, torch\n"
        "gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]\n"
        "half = bool(gpus) and torch.cuda.is_bf16_supported(including_emulation=False)\n"
        "print(json.dumps([gpus, half, torch.__version__]))"
    )
    asked = subprocess.run(  # noqa: S603 - a broken torch must not end the doctor
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["it ended"])[-1]
        yield Finding("gpu", "problem", f"torch cannot be used: {last}")
        return
    names, half, version = json.loads(asked.stdout.strip().splitlines()[-1])
    if names:
        dtype = "bfloat16" if half else "float16"
        yield Finding("gpu", "ok", f"{', '.join(names)}; models run in {dtype} (torch {version})")
    else:
        yield Finding("gpu", "note", f"none that torch {version} can use")


def _room() -> Iterator[Finding]:
    """Disk under the cache and memory."""
    folder = _existing(cache_dir())
    free = shutil.disk_usage(folder).free
    yield Finding(
        "disk", "ok" if free > ROOM else "note", f"{free / 2**30:.1f} GB free at {folder}"
    )
    memory = available_ram()
    if memory != float("inf"):
        state = "ok" if memory > ROOM else "note"
        yield Finding("memory", state, f"{memory / 2**30:.1f} GB available")


def _rights() -> Iterator[Finding]:
    """Whether the caches can be written."""
    folder = cache_dir()
    base = _existing(folder)
    other = next((one for one in (folder, *folder.parents) if one.is_file()), None)
    if other is not None:
        why = f"{other} is a file where a folder is wanted"
        yield Finding("cache", "problem", f"{why}; set AGENT_ENVS_CACHE to another folder")
        return
    try:
        with tempfile.NamedTemporaryFile(dir=base, prefix=".agent-envs-doctor"):
            pass
        yield Finding("cache", "ok", f"{folder}" + ("" if folder.exists() else " (not made yet)"))
    except OSError as error:
        why = f"{base} cannot be written ({error.strerror})"
        yield Finding("cache", "problem", f"{why}; set AGENT_ENVS_CACHE to another folder")


def _ports() -> Iterator[Finding]:
    """Whether the server's default port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
            yield Finding("port", "ok", f"127.0.0.1:{PORT} is free for agent-envs serve")
        except OSError as error:
            text = f"127.0.0.1:{PORT} is taken ({error.strerror}); agent-envs serve --port 0 takes a free one"
            yield Finding("port", "note", text)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python, _packages, _extras, _environments, _hardware, _room, _rights, _ports,
)  # fmt: skip


# -- inside ------------------------------------------------------------------------------------


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Name, range and extra ("" for the core) of what this distribution requires."""
    if _installed("agent-envs") is None:
        return
    for line in metadata.requires("agent-envs") or []:
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            continue
        marker = match[3] or ""
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)", marker)
        if "win32" in marker and sys.platform == "win32":
            continue
        yield match[1], match[2].strip(), extra[1] if extra else ""


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _within(version: str, wanted: str) -> bool:
    """Whether a version is in a range such as ``>=1.2,<2``; ``==3.8.*`` compares what it names."""
    for part in filter(None, (one.strip() for one in wanted.split(","))):
        sign, bound = re.match(r"(>=|<=|==|!=|~=|>|<)?\s*(.*)", part).groups()  # type: ignore[union-attr]
        found, limit = _numbers(version), _numbers(bound)
        width = max(len(found), len(limit))
        left, right = (tuple(n + (0,) * (width - len(n))) for n in (found, limit))
        same = found[: len(limit)] == limit if bound.endswith("*") else left == right
        holds = {
            ">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right,
            "==": same, "!=": not same, "~=": left >= right and found[: len(limit) - 1] == limit[:-1],
        }  # fmt: skip
        if not holds.get(sign or "==", True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers: ``2.13.0+cpu`` is (2, 13, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder
