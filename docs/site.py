"""MkDocs hook: README is the front page, and files outside ``docs/`` that pages link to are part of the site.

``[x](../examples/a.yaml)`` leads to the file in the repository and, on the site, to a copy of it under
``repository/``; Markdown files of the root become pages there. A link to nothing fails the strict build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<!!)(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
HOME = "index.md"


def _source(uri: str) -> str:
    """Where a page's text stands in the repository."""
    if uri == HOME:
        return "README.md"
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def _address(path: str) -> str:
    """Where a file of the repository stands on the site."""
    if path == "README.md":
        return HOME
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    suffix = (
        "" if "." in posixpath.basename(path) else ".txt"
    )  # NOTICE, LICENSE: browsers show .txt
    return f"repository/{path}{suffix}"


def _targets(uri: str, text: str) -> set[str]:
    folder = posixpath.dirname(_source(uri))
    found = {posixpath.normpath(posixpath.join(folder, m[2])) for m in _LINK.finditer(text)}
    return {path for path in found if not path.startswith(("docs/", "..")) and path != "README.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the front page and every file outside ``docs/`` that a page links to."""
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    texts[HOME] = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, HOME, content=texts[HOME]))
    waiting, known = list(texts.items()), set()
    while waiting:
        for path in _targets(*waiting.pop()) - known:
            known.add(path)
            if not (ROOT / path).is_file():
                continue  # the link stays as it is, and the strict build names it
            content = (ROOT / path).read_text(encoding="utf-8")
            name = _address(path)
            files.append(File.generated(config, name, content=content))
            if name.endswith(".md"):
                waiting.append((name, content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them."""
    uri = page.file.src_uri
    folder, here = posixpath.dirname(_source(uri)), posixpath.dirname(uri)

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        return f"{match[1]}{posixpath.relpath(_address(path), here or '.')}{match[3]}"

    return _LINK.sub(moved, markdown)
