"""Tasks with notes."""

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
    full_name,
    login,
    one_contact,
    read_note,
)
from agent_envs.envs.appworld.tasks.goals import Goal

NOTE = "access_token=token_simple_note"
ITEMS = ("oranges", "light bulbs", "flour", "cat food", "mustard")
HABITS = ("read", "stretch", "drink water", "no sugar", "walk")


def _note(draw: Draw, title: str) -> Mapping[str, Any]:
    rows = draw.mine("simple_note.notes", title=title)
    if len(rows) != 1:
        raise NoTask
    return rows[0]


@family("simple_note", difficulty=1, phrases=(
    "Add {item} to the end of my shopping list note, on a line with a dash like the other items.",
    "My note with the shopping list needs one more item at its end, written like the others: {item}.",
    "Put {item} on the shopping list in my notes, as the last item, like the others.",
))  # fmt: skip
def add_item(draw: Draw) -> Plan:
    note, item = _note(draw, "Shopping list"), draw.pick(ITEMS)
    wanted = f"{note['content']}\n- {item}"
    return Plan(
        {"item": item},
        Goal(updated=[("simple_note.notes", note["id"], {
            "title": note["title"], "tags": note["tags"],
            "content": lambda text: isinstance(text, str) and text.rstrip() == wanted,
        })]),
        (
            login("simple_note"),
            read_note("Shopping list"),
            f"apis.simple_note.update_note({NOTE}, note_id=number, content=note['content'] + '\\n- {item}')",
            complete(),
        ),
    )  # fmt: skip


@family("simple_note", difficulty=2, phrases=(
    "On how many days of my habit log did I {habit}?",
    "Count the days in the habit log among my notes that say yes to {habit!r}.",
    "According to my habit log note, how often have I done {habit!r}?",
))  # fmt: skip
def habit_days(draw: Draw) -> Plan:
    note, habit = _note(draw, "Habit log"), draw.pick(HABITS)
    lines = note["content"].splitlines()
    count = sum(f"{habit}: yes" in line for line in lines)
    if not 0 < count < len(lines):
        raise NoTask
    return Plan(
        {"habit": habit},
        Goal(answer=count),
        (
            login("simple_note"),
            read_note("Habit log"),
            f"count = sum({habit + ': yes'!r} in line for line in note['content'].splitlines())\nprint(count)",
            complete("count"),
        ),
    )


@family("simple_note", difficulty=1, phrases=(
    "Unpin all my notes.",
    "No note of mine should be pinned any more.",
    "Take the pin off every pinned note.",
))  # fmt: skip
def unpin_all(draw: Draw) -> Plan:
    pinned = draw.mine("simple_note.notes", pinned=True)
    if not pinned:
        raise NoTask
    return Plan(
        {},
        Goal(updated=[
            ("simple_note.notes", row["id"], {
                "pinned": False, "content": row["content"], "title": row["title"], "tags": row["tags"],
            })
            for row in pinned
        ]),
        (
            login("simple_note"),
            all_pages("notes", f"apis.simple_note.search_notes({NOTE}, pinned=True"),
            f"for note in notes:\n    apis.simple_note.update_note({NOTE}, note_id=note['note_id'], pinned=False)",
            complete(),
        ),
    )  # fmt: skip


@family("simple_note", difficulty=2, phrases=(
    "What is the total of the amounts in my note 'What I paid for others'?",
    "Sum up the dollars in my note about what I paid for others.",
    "My note 'What I paid for others' lists amounts. What do they add up to?",
))  # fmt: skip
def paid_total(draw: Draw) -> Plan:
    amounts = re.findall(r"\$(\d+\.\d\d)", _note(draw, "What I paid for others")["content"])
    if len(amounts) < 2:
        raise NoTask
    return Plan(
        {},
        Goal(answer=round(sum(map(float, amounts)), 2)),
        (
            login("simple_note"),
            read_note("What I paid for others"),
            "import re\ntotal = round(sum(float(a) for a in re.findall(r'\\$(\\d+\\.\\d\\d)', note['content'])), 2)",
            complete("total"),
        ),
    )


@family("simple_note", "phone", difficulty=3, phrases=(
    "Text my shopping list to {name}, word for word as it stands in my note.",
    "{name} goes shopping for us: send the text of my shopping list note, unchanged, as a text message.",
    "Send {name} a text message that holds exactly the content of my shopping list note.",
))  # fmt: skip
def text_list(draw: Draw) -> Plan:
    note = _note(draw, "Shopping list")
    person = draw.pick(
        [p for kind in ("roommate", "sibling", "friend", "parent") for p in draw.related(kind)]
    )
    text = note["content"]
    return Plan(
        {"name": full_name(person)},
        Goal(inserted=[("phone.text_messages", {
            "sender_id": draw.me, "receiver_id": person["id"],
            "text": lambda found: isinstance(found, str) and found.strip() == text.strip(),
        })]),
        (
            login("simple_note"),
            read_note("Shopping list"),
            login("phone"),
            one_contact(full_name(person)),
            "apis.phone.send_text_message(access_token=token_phone, phone_number=contact['phone_number'], "
            "text=note['content'])",
            complete(),
        ),
    )  # fmt: skip


@family("simple_note", difficulty=1, phrases=(
    "Delete my note with the quotes.",
    "I don't need the note named Quotes any more. Remove it.",
    "Please remove the Quotes note, and only that one.",
))  # fmt: skip
def delete_note(draw: Draw) -> Plan:
    note = _note(draw, "Quotes")
    return Plan(
        {},
        Goal(deleted=[("simple_note.notes", note["id"])]),
        (
            login("simple_note"),
            read_note("Quotes"),
            f"apis.simple_note.delete_note({NOTE}, note_id=number)",
            complete(),
        ),
    )
