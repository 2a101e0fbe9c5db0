"""Files and folders of each person."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.fields import DATE, DATETIME, EMAIL, Body, Path, Text, View
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

FILE_SYSTEM = App("file_system", "Your files and folders. Your home folder is ~.")
FILE_SYSTEM.accounts(
    View("", first_name=str, last_name=str, email=EMAIL, home=str, registered_on=DATE)
)
ENTRY = View("", path=str, kind=str, size=int, created_at=DATETIME, updated_at=DATETIME)
FILE = View("file", path=str, content=str, size=int, created_at=DATETIME, updated_at=DATETIME)
EXISTS = {"exists": bool}
FOLDERS = ("documents", "documents/bills", "downloads", "photos", "work")
PLACES = "lake|market|tower|garden|bridge|harbour".split("|")


@FILE_SYSTEM.seeding
def seed(b: Builder) -> None:
    """file_system.directories (owner_id, path, created_at), file_system.files (owner_id, path,
    content, created_at, updated_at). Bills are those of the household, dated by month."""
    b.table("file_system.directories")
    for account in b.accounts("file_system"):
        me = account["id"]
        rng = b.rng("file_system", f"files {me}")
        home = f"/home/{account['first_name'].lower()}"
        b.table("file_system.accounts")[me] = {**account, "home": home}
        for folder in ("", *FOLDERS):
            path = f"{home}/{folder}".rstrip("/")
            when = b.ago(rng, 370, 400)
            b.add("file_system.directories", owner_id=me, path=path, created_at=when)
        mine = [o for o in b.outings if me in o.members and "bill" in o.title]
        files = [
            (f"documents/bills/{o.title.replace(' ', '_')}_{o.when[:7]}.txt",
             f"{o.title.capitalize()}\nMonth: {o.when[:7]}\nTotal: ${o.cents / 100:.2f}\n", o.when)
            for o in mine
        ]  # fmt: skip
        files += [
            (f"photos/{rng.choice(PLACES)}_{i}.jpg", f"(picture {rng.randrange(10**6)})", b.ago(rng, 1, 360))
            for i in range(6)
        ]  # fmt: skip
        files += [
            (f"downloads/{rng.choice(('manual', 'ticket', 'invoice', 'song'))}_{i}."
             f"{rng.choice(('pdf', 'txt', 'zip', 'mp3'))}", f"item {rng.randrange(10**6)}",
             b.ago(rng, 1, 360))
            for i in range(5)
        ]  # fmt: skip
        files += [
            (f"work/{name}.md", f"# {name.capitalize()}\n- {rng.choice(('open', 'done'))}\n",
             b.ago(rng, 1, 200))
            for name in ("minutes", "plan", "budget")
        ]  # fmt: skip
        for path, content, when in {path: (path, *rest) for path, *rest in files}.values():
            b.add(
                "file_system.files", owner_id=me, path=f"{home}/{path}", content=content,
                created_at=when, updated_at=b.after(when, rng.randint(0, 3000)),
            )  # fmt: skip


def full(ctx: Context, path: str, person: int = 0) -> str:
    """The absolute, normal form of a path of the person's home (yours by default)."""
    home: str = ctx.find("file_system.accounts", person or ctx.person, "account")["home"]
    check(path[0] == "/" or path == "~" or path[:2] == "~/", "A path begins with / or ~/.")
    return posixpath.normpath(home + path[1:] if path[0] == "~" else path).replace("//", "/")


def find(ctx: Context, table: str, path: str, person: int = 0) -> Row | None:
    """The file or directory at a full path."""
    rows = ctx.where(f"file_system.{table}", owner_id=person or ctx.person, path=path)
    return rows[0] if rows else None


def _file(ctx: Context, path: str) -> Row:
    row = find(ctx, "files", full(ctx, path))
    if row is None:
        raise ApiError(409, f"There is no file at {full(ctx, path)}.")
    return row


def _directory(ctx: Context, path: str) -> Row:
    row = find(ctx, "directories", full(ctx, path))
    if row is None:
        raise ApiError(409, f"There is no directory at {full(ctx, path)}.")
    return row


def put(ctx: Context, path: str, content: str, overwrite: bool, person: int = 0) -> Row:
    """Writes a file, new or in place of an old one. The directory must be there."""
    path = full(ctx, path, person)
    parent = find(ctx, "directories", posixpath.dirname(path), person)
    check(parent is not None, f"There is no directory at {posixpath.dirname(path)}.", 409)
    check(find(ctx, "directories", path, person) is None, f"{path} is a directory.")
    old = find(ctx, "files", path, person)
    check(old is None or overwrite, f"There is already a file at {path}.")
    if old is not None:
        return ctx.db.update("file_system.files", old["id"], content=content, updated_at=ctx.now)
    return ctx.db.insert(
        "file_system.files", owner_id=person or ctx.person, path=path, content=content,
        created_at=ctx.now, updated_at=ctx.now,
    )  # fmt: skip


def _entry(row: Row) -> Answer:
    text = row.get("content")
    more = {"kind": "directory" if text is None else "file", "size": len(text or "")}
    return ENTRY({"updated_at": row["created_at"], **row}, **more)


def _inside(ctx: Context, table: str, path: str) -> list[Row]:
    return [row for row in ctx.mine(table) if row["path"].startswith(f"{path}/")]


@FILE_SYSTEM.api(
    "GET", "/directory", returns=[ENTRY], search=("path",),
    sort=("path", "size", "created_at", "updated_at"),
)  # fmt: skip
def show_directory(ctx: Context, *, path: Path = "~", recursive: bool = False) -> Iterable[Answer]:
    """List what is in a directory.

    path: the directory
    recursive: also what is in the directories within
    """
    at = _directory(ctx, path)["path"]
    rows = _inside(ctx, "directories", at) + _inside(ctx, "files", at)
    for row in sorted(rows, key=lambda row: row["path"]):
        if recursive or posixpath.dirname(row["path"]) == at:
            yield _entry(row)


@FILE_SYSTEM.api("POST", "/directory")
def create_directory(ctx: Context, *, path: Path, parents: bool = False) -> Answer:
    """Make a directory.

    path: where
    parents: make the directories above it too where they are missing
    """
    at = full(ctx, path)
    home = ctx.find("accounts", ctx.person)["home"]
    check(at.startswith(f"{home}/"), f"You can write only within {home}.")
    check(find(ctx, "directories", at) is None, f"There is already a directory at {at}.")
    missing = [at]
    while find(ctx, "directories", posixpath.dirname(missing[-1])) is None:
        missing.append(posixpath.dirname(missing[-1]))
    check(parents or len(missing) == 1, f"There is no directory at {missing[-1]}.", 409)
    files = [one for one in missing if find(ctx, "files", one)]
    check(not files, f"There is already a file at {''.join(files[:1])}.")
    for one in reversed(missing):
        ctx.insert("directories", owner_id=ctx.person, path=one, created_at=ctx.now)
    return {"message": f"Directory {at} created."}


@FILE_SYSTEM.api("DELETE", "/directory")
def delete_directory(ctx: Context, *, path: Path) -> Answer:
    """Delete a directory with all that is in it.

    path: the directory
    """
    row = _directory(ctx, path)
    check(row["path"] != ctx.find("accounts", ctx.person)["home"], "The home folder must stay.")
    for table in ("files", "directories"):
        for inner in _inside(ctx, table, row["path"]):
            ctx.delete(table, inner["id"])
    ctx.delete("directories", row["id"])
    return {"message": "Directory deleted."}


@FILE_SYSTEM.api("GET", "/directory/exists", returns=EXISTS)
def directory_exists(ctx: Context, *, path: Path) -> Answer:
    """Tell whether there is a directory.

    path: where
    """
    return {"exists": find(ctx, "directories", full(ctx, path)) is not None}


@FILE_SYSTEM.api("GET", "/file/exists", returns=EXISTS)
def file_exists(ctx: Context, *, path: Path) -> Answer:
    """Tell whether there is a file.

    path: where
    """
    return {"exists": find(ctx, "files", full(ctx, path)) is not None}


@FILE_SYSTEM.api("GET", "/file", returns=FILE)
def show_file(ctx: Context, *, path: Path) -> Answer:
    """Show a file with its content.

    path: the file
    """
    row = _file(ctx, path)
    return FILE(row, size=len(row["content"]))


@FILE_SYSTEM.api(
    "GET", "/files", returns=[ENTRY], search=("path", "content"), sort=("path", "updated_at")
)
def search_files(ctx: Context, *, ending: Text | None = None) -> Iterable[Answer]:
    """Search all your files by path and content.

    ending: only paths that end so, e.g. .pdf
    """
    for row in ctx.mine("files"):
        if ending is None or row["path"].endswith(ending):
            yield {**_entry(row), "content": row["content"]}


@FILE_SYSTEM.api("POST", "/file")
def create_file(ctx: Context, *, path: Path, content: Body = "", overwrite: bool = False) -> Answer:
    """Write a new file.

    path: where
    content: its text
    overwrite: replace a file that is there already
    """
    return {"message": f"File {put(ctx, path, content, overwrite)['path']} created."}


@FILE_SYSTEM.api("PATCH", "/file")
def update_file(ctx: Context, *, path: Path, content: Body, append: bool = False) -> Answer:
    """Change a file's text.

    path: the file
    content: the new text
    append: put it after the old text, not in its place
    """
    row = _file(ctx, path)
    text = row["content"] + content if append else content
    check(len(text) <= 100_000, "The file would be too large.")
    ctx.update("files", row["id"], content=text, updated_at=ctx.now)
    return {"message": "File updated."}


@FILE_SYSTEM.api("DELETE", "/file")
def delete_file(ctx: Context, *, path: Path) -> Answer:
    """Delete a file.

    path: the file
    """
    ctx.delete("files", _file(ctx, path)["id"])
    return {"message": "File deleted."}


@FILE_SYSTEM.api("POST", "/file/copy")
def copy_file(ctx: Context, *, path: Path, to_path: Path, overwrite: bool = False) -> Answer:
    """Copy a file to another path.

    path: the file
    to_path: the copy's path
    overwrite: replace a file that is there already
    """
    row = _file(ctx, path)
    check(full(ctx, to_path) != row["path"], "Both paths are the same.")
    put(ctx, to_path, row["content"], overwrite)
    return {"message": "File copied."}


@FILE_SYSTEM.api("POST", "/file/move")
def move_file(ctx: Context, *, path: Path, to_path: Path, overwrite: bool = False) -> Answer:
    """Move a file or give it another name; its dates stay.

    path: the file
    to_path: its new path
    overwrite: replace a file that is there already
    """
    row = _file(ctx, path)
    at = full(ctx, to_path)
    check(at != row["path"], "Both paths are the same.")
    check(find(ctx, "directories", at) is None, f"{at} is a directory.")
    parent = posixpath.dirname(at)
    check(find(ctx, "directories", parent) is not None, f"There is no directory at {parent}.", 409)
    old = find(ctx, "files", at)
    check(old is None or overwrite, f"There is already a file at {at}.")
    if old is not None:
        ctx.delete("files", old["id"])
    ctx.update("files", row["id"], path=at)
    return {"message": "File moved."}
