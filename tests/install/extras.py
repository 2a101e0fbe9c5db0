"""Install the core and each extra alone, use it once, and say what that cost: see run.sh."""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "tests" / "install" / "smoke.py"
MOST_IN_CORE = 15
TORCH = "torch==2.13.0"
NEED_TORCH = {"lora", "sb3", "search", "train"}
# what the libraries of an extra demand themselves, against constraints.txt
OWN_VERSIONS = {"gem": {"nltk"}, "rllib": {"gymnasium"}}
# the newest Python that an extra's libraries allow, where that is not the newest of ours
LAST_PYTHON = {"gem": (3, 11)}  # gem-llm 0.1.0 demands <=3.12, which excludes 3.12.1
LIMIT = 1200  # seconds per installation


class Failed(Exception):
    """An installation, or what it must hold, is not as wanted."""


@dataclass
class Row:
    """One extra. ``packages`` counts what came besides pip and ours; ``mb`` is all but pip."""

    extra: str
    packages: int = 0
    seconds: float = 0.0
    mb: float = 0.0
    state: str = "ok"
    note: str = ""


def extras() -> list[str]:
    """The names in setup.cfg, the core first."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return ["core", *config["options.extras_require"]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/install/run.sh", description=__doc__)
    parser.add_argument("extra", nargs="*", help="core, or extras of setup.cfg (default: all)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--keep", action="store_true", help="leave the environments where they are")
    options = parser.parse_args(arguments)
    wanted = options.extra or extras()
    if unknown := sorted(set(wanted) - set(extras())):
        parser.error(f"setup.cfg has no extra {', '.join(unknown)}; it has {', '.join(extras())}")
    folder = Path(tempfile.mkdtemp(prefix="agent-envs-install-"))
    try:
        return _all(wanted, options, folder)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _all(wanted: list[str], options: argparse.Namespace, folder: Path) -> int:
    wheel = _wheel(folder, options.python)
    version = _python(options.python)
    print(
        f"Python {'.'.join(map(str, version))}, {os.cpu_count()} cores; wall time, machine shared"
    )
    print(f"{'extra':15} {'packages':>8} {'seconds':>8} {'MB':>7}  smoke test", flush=True)
    rows = []
    for extra in wanted:
        row = _one(extra, version, options.python, wheel, folder / extra)
        rows.append(row)
        print(
            f"{extra:15} {row.packages:8} {row.seconds:8.0f} {row.mb:7.0f}  {row.state}: {row.note}",
            flush=True,
        )
        if not options.keep:
            shutil.rmtree(folder / extra, ignore_errors=True)
        if options.json:
            found = {"python": ".".join(map(str, version)), "rows": [asdict(row) for row in rows]}
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row.state == "failed" for row in rows))


def _one(extra: str, version: tuple[int, ...], python: str, wheel: Path, venv: Path) -> Row:
    """Install and use one extra; a failure is written down, not raised."""
    row = Row(extra)
    if extra in NEED_TORCH and version[:2] != (3, 11):
        row.state, row.note = "skipped", "needs torch, whose build here is for Python 3.11"
        return row
    last = LAST_PYTHON.get(extra)
    if last and version[:2] > last:
        row.state = "skipped"
        row.note = f"its libraries install on Python {'.'.join(map(str, last))} at most"
        return row
    began = time.monotonic()
    try:
        _install(extra, python, wheel, venv)
        row.seconds = time.monotonic() - began
        row.packages, row.mb = _contents(venv)
        if extra == "core" and row.packages > MOST_IN_CORE:
            raise Failed(f"the core pulls {row.packages} packages, more than {MOST_IN_CORE}")
        row.note = _run([venv / "bin" / "python", SMOKE, extra], cwd=venv).strip().splitlines()[-1]
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        row.seconds = row.seconds or time.monotonic() - began
        row.state, row.note = "failed", " ".join(str(error).split())[-600:]
    return row


def _install(extra: str, python: str, wheel: Path, venv: Path) -> None:
    _run([python, "-m", "venv", venv])
    pip = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-c"]
    constraints = venv / "constraints.txt"
    with_torch = extra in NEED_TORCH
    constraints.write_text(_constraints(OWN_VERSIONS.get(extra, set()), with_torch))
    if with_torch:
        _run([*pip, constraints, TORCH])
        _check_torch(venv)
    target = f"{wheel}[{extra}]" if extra != "core" else str(wheel)
    _run([*pip, constraints, target])
    if with_torch:
        _check_torch(venv)
    _run([venv / "bin" / "pip", "check", "--disable-pip-version-check"])


def _constraints(but: set[str], torch: bool) -> str:
    """constraints.txt without what the extra's libraries pin themselves. Where no torch is wanted none can come:
    its default build is gigabytes of CUDA."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if re.split("==", line)[0].lower() not in but]
    return "\n".join([*kept, *([] if torch else ["torch<0"])]) + "\n"


def _check_torch(venv: Path) -> None:
    code = "import torch; print(torch.version.cuda)"
    if (cuda := _run([venv / "bin" / "python", "-c", code]).strip()) != "None":
        raise Failed(f"pip brought a CUDA build of torch ({cuda}), want the CPU's")


def _contents(venv: Path) -> tuple[int, float]:
    """Distributions besides pip, setuptools and ours, and megabytes of all but pip and setuptools."""
    (packages,) = venv.glob("lib/python*/site-packages")
    seed = re.compile(r"(pip|setuptools|pkg_resources|_distutils_hack|distutils-precedence)\b.*")
    infos = [
        one
        for one in packages.glob("*.dist-info")
        if not re.match(r"(pip|setuptools|agent_envs)-", one.name)
    ]
    size = sum(
        file.lstat().st_size
        for top in packages.iterdir()
        if not seed.fullmatch(top.name)
        for file in ([top] if top.is_file() else top.rglob("*"))
        if file.is_file()
    )
    return len(infos), size / 1e6


def _wheel(folder: Path, python: str) -> Path:
    """Ours, built from a copy so that no build folder of the tree is used."""
    source, out = folder / "source", folder / "wheel"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    _run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, source])
    shutil.rmtree(source)
    return next(out.glob("*.whl"))


def _python(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:3])"
    return tuple(map(int, _run([python, "-c", code]).split()))


def _run(command: list, cwd: Path | None = None) -> str:
    """Standard output; a failure carries both streams."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(one) for one in command],
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} {' '.join(map(str, command[1:4]))} ended with {done.returncode}: "
                     f"{done.stdout[-2000:]} {done.stderr[-2000:]}")  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
