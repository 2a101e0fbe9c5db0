"""The page: static files, shipped with the package, that play environments and walk through trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from agent_envs_server.openenv_http import mounts
from agent_envs_server.settings import Settings

FOLDER = Path(__file__).with_name("static")
FILES = "/static"
# nothing of other sites, no inline script: texts of environments cannot become code
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address may hold a token
    "Cache-Control": "no-cache",  # asks each time whether a file has changed: no mixture of two versions
}


class _Files(StaticFiles):  # type: ignore[misc]
    """Static files with the headers of the page."""

    def file_response(self, *args: Any, **options: Any) -> Any:
        response = super().file_response(*args, **options)
        response.headers.update(_HEADERS)
        return response


def page_routes(settings: Settings) -> list[BaseRoute]:
    """``/`` and its files, and ``/envs``: the names of the mounts."""

    async def index(request: Any) -> Any:
        return FileResponse(FOLDER / "index.html", headers=_HEADERS)

    async def envs(request: Any) -> Any:
        return JSONResponse({"envs": list(mounts(settings.ids()))})

    return [
        Route("/", index, methods=["GET"]),
        Route("/envs", envs, methods=["GET"]),
        Mount(FILES, _Files(directory=FOLDER)),
    ]
