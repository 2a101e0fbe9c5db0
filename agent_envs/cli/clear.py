"""``data clear``: remove what the hub itself put into its cache, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from agent_envs.cli.common import Json, err, out, print_json
from agent_envs.core.errors import one_of
from agent_envs.core.files import cache_dir

# what each area's code writes; a folder is taken by the file that only we put into it
OWN: dict[str, tuple[str, ...]] = {
    "alfworld": ("games.pack", "index-*.json"),
    "webshop": ("*/meta.json",),
    "search": ("vectors-*.npy",),
    "models": ("smollm2/config.json",),
}


def own_files(names: tuple[str, ...]) -> list[Path]:
    """Files and folders of ours in the cache; links are never followed."""
    found: list[Path] = []
    for name in names:
        area = cache_dir() / name
        if area.is_symlink():
            continue
        for pattern in OWN[name]:
            matches = sorted(area.glob(pattern))
            found += [match.parent if "/" in pattern else match for match in matches]
    return [path for path in found if not path.is_symlink()]


def clear(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help=f"One of {', '.join(OWN)}; default all.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove imported data and converted models from the cache, after showing them and asking."""
    if name is not None:
        one_of("data", name, OWN)
    found = own_files(tuple(OWN) if name is None else (name,))
    sizes = {path: _size(path) for path in found}
    if not as_json:
        for path, size in sizes.items():
            out.print(f"{size:>15,} bytes  {path}", highlight=False, soft_wrap=True, markup=False)
        if not found:
            out.print(f"nothing of ours in {cache_dir()}", highlight=False, soft_wrap=True)
    if found and not yes and (as_json or not _agreed(len(found))):
        err.print("nothing was removed" + (" (--yes removes)" if as_json else ""))
        found = []
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if as_json:
        listed = [{"path": str(path), "bytes": size} for path, size in sizes.items()]
        print_json({"cache": str(cache_dir()), "found": listed, "removed": len(found)})
    elif found:
        out.print(f"removed {sum(sizes.values()):,} bytes", highlight=False)


def _agreed(count: int) -> bool:
    try:
        return input(f"Remove these {count}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    parts = (part for part in path.rglob("*") if part.is_file() and not part.is_symlink())
    return sum(part.stat().st_size for part in parts)  # what a link leads to stays
