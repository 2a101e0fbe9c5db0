"""Tasks with files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    complete,
    family,
    login,
)
from agent_envs.envs.appworld.tasks.goals import Goal

FILES = "access_token=token_file_system"
BILLS = ("electricity bill", "internet bill", "water bill")


def _inside(draw: Draw, folder: str) -> list[Mapping[str, Any]]:
    """The person's files in a folder below the home folder."""
    account = draw.db.get("file_system.accounts", draw.me)
    assert account is not None  # supervisors have all accounts
    start = f"{account['home']}/{folder}/"
    return [row for row in draw.mine("file_system.files") if row["path"].startswith(start)]


def _listed(folder: str) -> str:
    return all_pages("entries", f"apis.file_system.show_directory({FILES}, path='~/{folder}'")


@family("file_system", difficulty=1, phrases=(
    "Delete all {ending} files in my downloads folder.",
    "Clean up my downloads: every file that ends in {ending} can go.",
    "Remove each {ending} file from ~/downloads.",
))  # fmt: skip
def delete_ending(draw: Draw) -> Plan:
    files = _inside(draw, "downloads")
    ending = draw.pick((".pdf", ".txt", ".zip", ".mp3"))
    gone = [row for row in files if row["path"].endswith(ending)]
    if not 0 < len(gone) < len(files):
        raise NoTask
    return Plan(
        {"ending": ending},
        Goal(deleted=[("file_system.files", row["id"]) for row in gone]),
        (
            login("file_system"),
            _listed("downloads") + "\nfor entry in entries:\n"
            f"    if entry['path'].endswith({ending!r}):\n"
            f"        apis.file_system.delete_file({FILES}, path=entry['path'])",
            complete(),
        ),
    )


@family("file_system", difficulty=2, phrases=(
    "Delete everything in my downloads folder that was last changed before {day}.",
    "Files in ~/downloads whose last change lies before {day} can be removed. Do it.",
    "Remove what has not been changed in my downloads since {day}; keep what was changed on that day or later.",
))  # fmt: skip
def delete_old(draw: Draw) -> Plan:
    files = sorted(_inside(draw, "downloads"), key=lambda row: row["updated_at"])
    if len(files) < 3:
        raise NoTask
    day = draw.pick(files[1:])["updated_at"][:10]
    gone = [row for row in files if row["updated_at"][:10] < day]
    if not gone:
        raise NoTask
    return Plan(
        {"day": day},
        Goal(deleted=[("file_system.files", row["id"]) for row in gone]),
        (
            login("file_system"),
            _listed("downloads") + "\nfor entry in entries:\n"
            f"    if entry['updated_at'] < '{day}':\n"
            f"        apis.file_system.delete_file({FILES}, path=entry['path'])",
            complete(),
        ),
    )


@family("file_system", difficulty=2, phrases=(
    "What do all my files of the {title} add up to?",
    "Sum the totals of every {title} in ~/documents/bills.",
    "How many dollars in all do the {title} files in my bills folder name?",
))  # fmt: skip
def bill_total(draw: Draw) -> Plan:
    title = draw.pick(BILLS)
    files = [
        row
        for row in _inside(draw, "documents/bills")
        if f"/{title.replace(' ', '_')}_" in row["path"]
    ]
    amounts = [float(re.findall(r"Total: \$(\d+\.\d\d)", row["content"])[0]) for row in files]
    if len(amounts) < 2:
        raise NoTask
    return Plan(
        {"title": title},
        Goal(answer=round(sum(amounts), 2)),
        (
            login("file_system"),
            _listed("documents/bills")
            + f"\npaths = [e['path'] for e in entries if '/{title.replace(' ', '_')}_' in e['path']]\nprint(paths)",
            "import re\ntotal = 0\nfor path in paths:\n"
            f"    text = apis.file_system.show_file({FILES}, path=path)['content']\n"
            "    total += float(re.findall(r'Total: \\$(\\d+\\.\\d\\d)', text)[0])\nprint(round(total, 2))",
            complete("round(total, 2)"),
        ),
    )


@family("file_system", difficulty=2, phrases=(
    "Move my photos of the {place} into a new folder photos/{place}; they keep their names.",
    "Make a folder {place} in my photos and put all pictures of the {place} there.",
    "All files in ~/photos whose name begins with {place} belong in a new folder ~/photos/{place}.",
))  # fmt: skip
def sort_photos(draw: Draw) -> Plan:
    photos = _inside(draw, "photos")
    place = draw.pick(("lake", "market", "tower", "garden", "bridge", "harbour"))
    moved = [row for row in photos if f"/photos/{place}_" in row["path"]]
    if not 1 < len(moved) < len(photos):
        raise NoTask
    folder = moved[0]["path"].rpartition("/")[0] + f"/{place}"
    return Plan(
        {"place": place},
        Goal(
            inserted=[("file_system.directories", {"owner_id": draw.me, "path": folder})],
            updated=[
                ("file_system.files", row["id"], {
                    "path": f"{folder}/{row['path'].rpartition('/')[2]}", "content": row["content"],
                })
                for row in moved
            ],
        ),
        (
            login("file_system"),
            _listed("photos"),
            f"apis.file_system.create_directory({FILES}, path='~/photos/{place}')",
            "for entry in entries:\n"
            "    name = entry['path'].rpartition('/')[2]\n"
            f"    if name.startswith('{place}_'):\n"
            f"        apis.file_system.move_file({FILES}, path=entry['path'], to_path='~/photos/{place}/' + name)",
            complete(),
        ),
    )  # fmt: skip


@family("file_system", "simple_note", difficulty=3, phrases=(
    "Write a note titled 'Last {title}' with the latest {title} from my bills folder, word for word.",
    "Copy the newest {title} in ~/documents/bills into a new note named 'Last {title}', unchanged.",
    "I want the text of my most recent {title} (by its month) as a note; call the note 'Last {title}'.",
))  # fmt: skip
def bill_to_note(draw: Draw) -> Plan:
    title = draw.pick(BILLS)
    mark = f"/{title.replace(' ', '_')}_"
    files = sorted(
        (row for row in _inside(draw, "documents/bills") if mark in row["path"]),
        key=lambda row: row["path"],
    )
    if len(files) < 2:
        raise NoTask
    text = files[-1]["content"]
    return Plan(
        {"title": title},
        Goal(inserted=[("simple_note.notes", {
            "owner_id": draw.me, "title": f"Last {title}",
            "content": lambda found: isinstance(found, str) and found.strip() == text.strip(),
        })]),
        (
            login("file_system"),
            _listed("documents/bills")
            + f"\npath = max(e['path'] for e in entries if {mark!r} in e['path'])\n"
            f"text = apis.file_system.show_file({FILES}, path=path)['content']\nprint(text)",
            login("simple_note"),
            f"apis.simple_note.create_note(access_token=token_simple_note, title='Last {title}', content=text)",
            complete(),
        ),
    )  # fmt: skip
