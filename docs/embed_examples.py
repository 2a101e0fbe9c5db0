"""Put the examples' code into the documentation; ``--check`` only says whether it is up to date.

A line ``<!-- example NAME -->`` is followed by the code of ``examples/NAME.py`` in a fenced block.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_MARK = re.compile(r"(<!-- example (\w+) -->\n)(?:\n?```python\n.*?\n```\n)?", re.DOTALL)


def embedded(text: str) -> str:
    """``text`` with the current code of all examples that it names."""

    def block(match: re.Match[str]) -> str:
        code = (ROOT / "examples" / f"{match[2]}.py").read_text(encoding="utf-8").rstrip()
        return f"{match[1]}```python\n{code}\n```\n"

    return _MARK.sub(block, text)


def main() -> int:
    stale = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if embedded(text) != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(embedded(text), encoding="utf-8")
    print("stale: " + ", ".join(stale) if stale else "up to date")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
