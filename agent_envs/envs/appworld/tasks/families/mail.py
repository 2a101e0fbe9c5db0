"""Tasks with mail; kept for the challenge split."""

from __future__ import annotations

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
from agent_envs.envs.appworld.tasks.goals import Goal, Values

MAIL = "access_token=token_gmail"
KINDS = ("friend", "coworker", "roommate", "sibling", "parent", "child")


def inbox(draw: Draw, **values: Any) -> list[Mapping[str, Any]]:
    return draw.mine("gmail.emails", box="inbox", **values)


def kept(row: Mapping[str, Any], **changes: Any) -> Values:
    """All that a flag must not change of a mail, and the flag."""
    names = ("subject", "body", "sender", "read", "starred", "archived")
    return {name: row[name] for name in names} | changes


def writer(draw: Draw, rows: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Somebody known from the contacts who wrote some of these mails."""
    senders = {row["sender"] for row in rows}
    people = [p for kind in KINDS for p in draw.related(kind) if p["email"] in senders]
    return draw.pick(people)  # type: ignore[no-any-return]


def sent(draw: Draw, receiver: Mapping[str, Any], **values: Any) -> list[tuple[str, Values]]:
    """The two copies of a mail to one receiver."""
    shared = {"sender": draw.person(draw.me)["email"], "recipients": [receiver["email"]], **values}
    return [
        ("gmail.emails", {"owner_id": draw.me, "box": "sent", **shared}),
        ("gmail.emails", {"owner_id": receiver["id"], "box": "inbox", **shared}),
    ]


@family("gmail", difficulty=1, challenge=True, phrases=(
    "How many mails in my Gmail inbox have I not read yet, archived ones included?",
    "Count the unread mails of my inbox on Gmail, archived or not.",
    "What is the number of unread mails in the inbox of my Gmail account? Archived ones count, too.",
))  # fmt: skip
def unread(draw: Draw) -> Plan:
    rows = inbox(draw)
    count = sum(not row["read"] for row in rows)
    if not 0 < count < len(rows):
        raise NoTask
    return Plan(
        {},
        Goal(answer=count),
        (
            login("gmail"),
            all_pages("mails", f"apis.gmail.search_emails({MAIL}, read=False")
            + "\nprint(len(mails))",
            complete("len(mails)"),
        ),
    )


@family("gmail", "phone", difficulty=2, challenge=True, phrases=(
    "Star every mail from {name} in my Gmail inbox, archived ones too.",
    "All mails that {name} sent me, in the inbox of Gmail, archived or not, should have a star.",
    "Give a star on Gmail to each inbox mail from {name} that has none, also to archived ones.",
))  # fmt: skip
def star_sender(draw: Draw) -> Plan:
    person = writer(draw, inbox(draw, starred=False))
    rows = inbox(draw, starred=False, sender=person["email"])
    return Plan(
        {"name": full_name(person)},
        Goal(updated=[("gmail.emails", row["id"], kept(row, starred=True)) for row in rows]),
        (
            login("phone"),
            one_contact(full_name(person)),
            login("gmail"),
            all_pages(
                "mails", f"apis.gmail.search_emails({MAIL}, sender=contact['email'], starred=False"
            )
            + f"\nfor mail in mails:\n    apis.gmail.star_email({MAIL}, email_id=mail['email_id'])",
            complete(),
        ),
    )


@family("gmail", difficulty=2, challenge=True, phrases=(
    "Archive all mails in my Gmail inbox that I have read and that came before {day}.",
    "Read mails of my Gmail inbox from before {day} belong in the archive. Put them there.",
    "On Gmail, archive what is read in the inbox and older than {day} (that day itself stays).",
))  # fmt: skip
def archive_old(draw: Draw) -> Plan:
    rows = sorted(inbox(draw, read=True, archived=False), key=lambda row: row["sent_at"])
    if len(rows) < 4:
        raise NoTask
    day = draw.pick(rows[1:])["sent_at"][:10]
    old = [row for row in rows if row["sent_at"][:10] < day]
    if not old:
        raise NoTask
    return Plan(
        {"day": day},
        Goal(updated=[("gmail.emails", row["id"], kept(row, archived=True)) for row in old]),
        (
            login("gmail"),
            all_pages("mails", f"apis.gmail.search_emails({MAIL}, read=True, archived=False")
            + "\nfor mail in mails:\n"
            f"    if mail['sent_at'] < '{day}':\n"
            f"        apis.gmail.archive_email({MAIL}, email_id=mail['email_id'])",
            complete(),
        ),
    )


@family("gmail", "phone", difficulty=2, challenge=True, phrases=(
    "Reply to the latest mail from {name} in my Gmail inbox (it may be archived): {text!r}",
    "Answer {name}'s newest mail on Gmail, archived or not, with {text!r}",
    "{name} wrote me on Gmail. Reply {text!r} to the most recent of these mails, even if it is archived.",
))  # fmt: skip
def reply_latest(draw: Draw) -> Plan:
    person = writer(draw, inbox(draw))
    row = max(inbox(draw, sender=person["email"]), key=lambda row: (row["sent_at"], row["id"]))
    text = draw.pick(("That works for me.", "I will call you tomorrow.", "No, sorry."))
    subject = row["subject"] if row["subject"].startswith("Re: ") else f"Re: {row['subject']}"
    mails = sent(draw, person, subject=subject, body=text, thread_id=row["thread_id"])
    return Plan(
        {"name": full_name(person), "text": text},
        Goal(inserted=mails),
        (
            login("phone"),
            one_contact(full_name(person)),
            login("gmail"),
            all_pages("mails", f"apis.gmail.search_emails({MAIL}, sender=contact['email']")
            + "\nlatest = max(mails, key=lambda mail: mail['sent_at'])\nprint(latest)",
            f"apis.gmail.reply_to_email({MAIL}, email_id=latest['email_id'], body={text!r})",
            complete(),
        ),
    )


@family("gmail", "phone", "simple_note", difficulty=3, challenge=True, phrases=(
    "Mail {name} my note {title!r}: the subject is the title, the text is the note's, word for word.",
    "Send the content of my note {title!r} to {name} by Gmail, with the note's title as the subject.",
    "{name} wants my note {title!r}. Send it as a mail on Gmail, subject {title!r}, text unchanged.",
))  # fmt: skip
def mail_note(draw: Draw) -> Plan:
    note = draw.pick([row for row in draw.mine("simple_note.notes") if row["content"]])
    people = [p for kind in ("friend", "coworker") for p in draw.related(kind)]
    person = draw.pick([p for p in people if draw.db.get("gmail.accounts", p["id"]) is not None])
    title, text = note["title"], note["content"]
    if len(draw.mine("simple_note.notes", title=title)) != 1:
        raise NoTask

    def same(found: Any) -> bool:
        return isinstance(found, str) and found.strip() == text.strip()

    return Plan(
        {"name": full_name(person), "title": title},
        Goal(inserted=sent(draw, person, subject=title, body=same), allowed=("gmail.threads",)),
        (
            login("simple_note"),
            read_note(title),
            login("phone"),
            one_contact(full_name(person)),
            login("gmail"),
            f"apis.gmail.send_email({MAIL}, recipients=[contact['email']], subject={title!r}, body=note['content'])",
            complete(),
        ),
    )
