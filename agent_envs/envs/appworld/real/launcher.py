"""Starts ``appworld serve environment`` on a socket that is bound already, and on this machine only.

Run by the Python of the user's AppWorld environment: ``python launcher.py SOCKET NEWS ROOT``. Its standard
input stays open as long as our process lives; at its end the server ends too.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
from importlib import metadata
from typing import Any


def main() -> None:
    """Serve until told to stop."""
    listener, news, root = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    uvicorn: Any = importlib.import_module("uvicorn")  # that environment's own

    def run(app: Any, **options: Any) -> None:
        for name in ("host", "port", "fd", "uds", "workers", "reload"):
            options.pop(name, None)
        os.write(news, b"loopback\n")
        uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listener])

    uvicorn.run = run  # AppWorld 0.1.3 listens on all interfaces and takes no host
    version = metadata.version("appworld")
    # later versions end whatever holds their port, which would be us
    port = str(listener.getsockname()[1]) if version.startswith("0.1.") else "0"
    (command,) = metadata.entry_points(group="console_scripts", name="appworld")
    words = ["serve", "environment", "--port", port, "--root", root, "--no-show-usage"]
    sys.argv = ["appworld", *words]
    command.load()()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
