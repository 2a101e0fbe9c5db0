"""Notes with tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import DATE, DATETIME, EMAIL, Body, Id, Text, View, created

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

SIMPLE_NOTE = App("simple_note", "Write notes, tag them and find them again.")
SIMPLE_NOTE.accounts(View("", first_name=str, last_name=str, email=EMAIL, registered_on=DATE))
SHORT = View("note", title=str, tags=[str], pinned=bool, created_at=DATETIME, updated_at=DATETIME)
NOTE = SHORT.plus(content=str)
HABITS = "read|stretch|drink water|no sugar|walk".split("|")
QUOTES = """Slow is smooth and smooth is fast.|A tidy desk begins with one sheet.
Ask twice, cut once.|The second cup is always better.""".replace("\n", "|").split("|")
ITEMS = "oats|tomatoes|rice|batteries|soap|lentils|olive oil|paper towels|tea|apples|yeast".split(
    "|"
)


@SIMPLE_NOTE.seeding
def seed(b: Builder) -> None:
    """simple_note.notes (owner_id, title, content, tags, pinned). Among them: a habit log by day,
    a shopping list, songs of a mood (titles of spotify.songs), trips' costs, and quotes."""
    rng = b.rng("simple_note", "notes")
    songs = list(b.table("spotify.songs").values())
    for account in b.accounts("simple_note"):
        me = account["id"]
        mood = rng.choice(("running", "rainy day", "cooking", "focus"))
        picked = [f"- {song['title']}" for song in rng.sample(songs, min(6, len(songs)))]
        logged = [_habits(b, rng.random(), day) for day in range(12, 0, -1)]
        mine = [outing for outing in b.outings if outing.payer == me][-5:]
        paid = [f"- {o.when[:10]} {o.title}: ${o.cents / 100:.2f}" for o in mine]
        for title, lines, tags in (
            (f"Songs for {mood}", picked, ["music"]),
            ("Habit log", logged, ["health"]),
            ("Shopping list", [f"- {item}" for item in rng.sample(ITEMS, 6)], ["home"]),
            ("What I paid for others", paid, ["money"]),
            ("Quotes", rng.sample(QUOTES, 3), ["reading"]),
            ("Gift ideas", [f"- {b.people[i - 1]['first_name']}: {rng.choice(('scarf', 'book', 'mug'))}"
                            for i in b.related(me)[:4]], ["people"]),
        ):  # fmt: skip
            when = b.ago(rng, 3, 320)
            b.add(
                "simple_note.notes", owner_id=me, title=title, content="\n".join(lines),
                tags=tags, pinned=rng.random() < 0.2, created_at=when,
                updated_at=b.after(when, rng.randint(0, 4000)),
            )  # fmt: skip


def _habits(b: Builder, share: float, day: int) -> str:
    rng = b.rng("simple_note", f"habits {day}")
    when = b.ago(rng, day, day)[:10]
    marks = (f"{habit}: {'yes' if rng.random() < 0.3 + share / 2 else 'no'}" for habit in HABITS)
    return f"{when} | " + ", ".join(marks)


@SIMPLE_NOTE.api(
    "GET", "/notes", returns=[SHORT], search=("title", "tags", "content"),
    sort=("title", "created_at", "updated_at"),
)  # fmt: skip
def search_notes(
    ctx: Context, *, tag: Text | None = None, pinned: bool | None = None
) -> Iterable[Answer]:
    """Search your notes; their text is found but not shown.

    tag: only notes with this tag
    pinned: only those that are pinned, or not
    """
    for row in ctx.mine("notes"):
        if (tag is None or tag in row["tags"]) and pinned in (None, row["pinned"]):
            yield NOTE(row)


@SIMPLE_NOTE.api("GET", "/notes/{note_id}", returns=NOTE)
def show_note(ctx: Context, *, note_id: Id) -> Answer:
    """Show a note with its text.

    note_id: the note's id
    """
    return NOTE(ctx.own("notes", note_id))


@SIMPLE_NOTE.api("POST", "/notes", returns=created("note"))
def create_note(
    ctx: Context,
    *,
    title: Text,
    content: Body = "",
    tags: list[Text] | None = None,
    pinned: bool = False,
) -> Answer:
    """Write a note.

    title: its title
    content: its text
    tags: its tags
    pinned: whether it is pinned to the top
    """
    row = ctx.insert(
        "notes", owner_id=ctx.person, title=title, content=content, tags=tags or [],
        pinned=pinned, created_at=ctx.now, updated_at=ctx.now,
    )  # fmt: skip
    return {"message": "Note created.", "note_id": row["id"]}


@SIMPLE_NOTE.api("PATCH", "/notes/{note_id}")
def update_note(
    ctx: Context,
    *,
    note_id: Id,
    title: Text | None = None,
    content: Body | None = None,
    tags: list[Text] | None = None,
    pinned: bool | None = None,
) -> Answer:
    """Change a note; what you leave out stays.

    note_id: the note's id
    title: the new title
    content: the new text, in place of the old one
    tags: the new tags, in place of the old ones
    pinned: whether it is pinned
    """
    ctx.own("notes", note_id)
    given = [title, content, tags, pinned]
    check(any(value is not None for value in given), "There is nothing to change.")
    ctx.update(
        "notes", note_id, title=title, content=content, tags=tags, pinned=pinned,
        updated_at=ctx.now,
    )  # fmt: skip
    return {"message": "Note updated."}


@SIMPLE_NOTE.api("DELETE", "/notes/{note_id}")
def delete_note(ctx: Context, *, note_id: Id) -> Answer:
    """Delete a note.

    note_id: the note's id
    """
    ctx.own("notes", note_id)
    ctx.delete("notes", note_id)
    return {"message": "Note deleted."}
