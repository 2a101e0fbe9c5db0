"""A WebSocket that answers at once: what a frame costs at least, on the server's own stack.

``python echo_peer.py`` prints its port as a line of JSON and serves until it is ended.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import uvicorn

ANSWER = json.dumps({"type": "observation", "data": {"observation": {"text": "ok"}}})


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": ANSWER})


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(json.dumps({"port": listener.getsockname()[1], "pid": os.getpid()}), flush=True)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
