"""A server that speaks the protocol of ``appworld serve environment``, faults included.

Written from the table in shared/design/APPWORLD.md, section 2. One world per process; its code is a toy:
``x += 3`` and ``print(x)`` on one number, ``done`` completes, other words are faults.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

TASKS = {f"toy_{n}": n for n in range(1, 7)}


class World:
    """What is global in such a process."""

    task_id = ""
    x = 0
    completed = False
    initialized = 0


def initialize(body: dict[str, Any]) -> Any:
    if body["task_id"] not in TASKS:
        raise LookupError("no such task")
    World.task_id, World.x, World.completed = body["task_id"], 0, False
    World.initialized += 1
    return {
        "task_id": World.task_id,
        "instruction": f"Bring x to {TASKS[World.task_id]}.",
        "supervisor": {
            "first_name": "Ada",
            "last_name": "Stub",
            "email": "ada@stub.example",
            "phone_number": "123",
        },
        "datetime": "2023-05-18T12:00:00",
    }


def execute(body: dict[str, Any]) -> Any:
    code = body["code"]
    if code == "die":
        os._exit(9)
    if code == "hang":
        time.sleep(600)
    if code == "fail, then hang":
        if World.initialized > 1:
            time.sleep(600)
        code = "fail"
    if code == "fail":
        raise RuntimeError("inside")
    if code.startswith("x += "):
        World.x += int(code[5:])
        return "Execution successful."
    if code == "print(x)":
        return f"{World.x}\n"
    if code == "done":
        World.completed = True
        return "Execution successful."
    return "Execution failed. Traceback:\nNameError: ..."


def evaluate(body: dict[str, Any]) -> Any:
    right = World.x == TASKS[World.task_id]
    checks = [
        (right, "x is right", "no_op_fail"),
        (World.completed, "done was said", "no_op_fail"),
        (World.x < 100, "x stays small", "no_op_pass"),
    ]
    return {
        "success": all(passed for passed, _, _ in checks),
        "difficulty": 1,
        "num_tests": len(checks),
        "passes": [{"requirement": r, "label": name} for passed, r, name in checks if passed],
        "failures": [
            {"requirement": r, "trace": "...", "label": name}
            for passed, r, name in checks
            if not passed
        ],
    }


ROUTES = {
    "/initialize": initialize,
    "/execute": execute,
    "/task_completed": lambda body: World.completed,
    "/evaluate": evaluate,
}


async def app(scope, receive, send) -> None:
    """ASGI; synchronous work blocks the loop, as in the original."""
    if scope["type"] != "http":
        return
    if os.environ.get("APPWORLD_STUB") == "crashes":
        os.write(2, b"no room left")
        os._exit(1)
    message = await receive()
    content = message["body"]
    while message.get("more_body"):
        message = await receive()
        content += message["body"]
    status, answer = 200, {"message": "AppWorld stub"}
    if scope["method"] == "POST":
        body = json.loads(content)
        route = ROUTES[scope["path"]]
        if scope["path"] != "/initialize" and body["task_id"] != World.task_id:
            status, answer = 500, "Internal Server Error"  # as 0.1.3 says: no detail
        else:
            try:
                answer = {"output": route(body)}
            except Exception:
                status, answer = 500, "Internal Server Error"
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def main() -> None:
    """What the console script ``appworld`` does: ``serve environment --port P --root R``."""
    import uvicorn

    if os.environ.get("APPWORLD_STUB") == "refuses":
        sys.exit("Did not find any ./data")
    assert sys.argv[1:3] == ["serve", "environment"]
    port = int(sys.argv[sys.argv.index("--port") + 1])
    uvicorn.run(app, host="0.0.0.0", port=port, log_level="warning")
