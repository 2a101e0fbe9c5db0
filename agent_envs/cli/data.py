"""``data``: real benchmark data, imported once into the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_envs.cli.clear import clear
from agent_envs.cli.common import Json, out, print_json, progress_bar
from agent_envs.core.errors import one_of

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Real benchmark data.\n\n`import` packs a download into the cache; environments use it "
        'only where it is named: `data_dir="imported"`. A download can also be used in place: '
        "`data_dir=DIR`, or the environment variable (`ALFWORLD_DATA`, `WEBSHOP_DATA`)."
    ),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Which data: alfworld, webshop.")]


def _import_alfworld(folder: Path, update: Callable[..., None]) -> dict[str, Any]:
    from agent_envs.envs.alfworld import library

    counts, skipped = library.import_folder(folder, update)
    path = library.pack_path()
    return {
        "path": str(path), "bytes": path.stat().st_size, "games": counts, "skipped": skipped
    }  # fmt: skip


def _info_alfworld(data_dir: str | None) -> dict[str, Any]:
    import os

    from agent_envs.envs.alfworld import library

    path = library.pack_path()
    found: dict[str, Any] = {
        "imported pack": f"{path} ({'present' if path.exists() else 'absent'})",
        "ALFWORLD_DATA": os.environ.get("ALFWORLD_DATA", "not set"),
    }
    tasks = library.open_tasks(data_dir, None)
    found["in use"] = tasks.source
    found["games"] = {split: tasks.count(split) for split in tasks.splits}
    found["skipped"] = tasks.skipped
    return found


def _import_webshop(folder: Path, update: Callable[..., None]) -> dict[str, Any]:
    import os
    import time

    from agent_envs.envs.webshop import shop

    begun = time.monotonic()
    stock, skipped = shop.import_folder(folder, update, min(8, os.cpu_count() or 1))
    path = shop.imported_folder()
    return {
        "path": str(path),
        "bytes": sum(file.stat().st_size for file in path.iterdir()),
        "seconds": round(time.monotonic() - begun, 1),
        "counts": _webshop_counts(stock),
        "skipped": skipped,
    }


def _webshop_counts(stock: Any) -> dict[str, int]:
    people = 0 if stock.human is None else len(stock.human)
    return {
        "products": stock.catalogue.size,
        "made goals": len(stock.made),
        "people's goals": people,
    }


def _info_webshop(data_dir: str | None) -> dict[str, Any]:
    import os

    from agent_envs.envs.webshop import shop

    path = shop.imported_folder()
    stock = shop.open_shop(data_dir, False).stock
    return {
        "imported catalogue": f"{path} ({'present' if path.exists() else 'absent'})",
        "WEBSHOP_DATA": os.environ.get("WEBSHOP_DATA", "not set"),
        "in use": stock.source,
        "counts": _webshop_counts(stock),
        "skipped": stock.skipped,
    }


app.command("clear")(clear)
IMPORTERS = {"alfworld": _import_alfworld, "webshop": _import_webshop}
INFOS = {"alfworld": _info_alfworld, "webshop": _info_webshop}


@app.command("import", epilog="Example: `agent-envs data import alfworld json_2.1.1`")
def import_data(
    name: Name,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The download's folder.")],
    as_json: Json = False,
) -> None:
    """Pack a download into one small file in the cache."""
    one_of("data", name, IMPORTERS)
    with progress_bar(f"importing {name}", None, as_json) as update:
        report = IMPORTERS[name](folder, update)
    if as_json:
        print_json(report)
        return
    counts = report.get("games") or report["counts"]
    games = ", ".join(f"{name} {count}" for name, count in counts.items())
    took = f", in {report['seconds']} s" if "seconds" in report else ""
    out.print(f"{report['path']}: {report['bytes']:,} bytes, {games}{took}", highlight=False)
    what = "games" if "games" in report else "products:"
    for reason, count in report["skipped"].items():
        out.print(f"left out: {count} {what} {reason}", highlight=False)
    out.print('use it with data_dir="imported"', highlight=False)


@app.command("info", epilog="Example: `agent-envs data info alfworld`")
def info(
    name: Name,
    data_dir: Annotated[str | None, typer.Option(help="Look at this folder instead.")] = None,
    as_json: Json = False,
) -> None:
    """Say which data is found, where, how many games, and what was left out and why."""
    one_of("data", name, INFOS)
    found = INFOS[name](data_dir)
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        out.print(f"{key}: {value}", highlight=False, markup=False)
