"""Mail: one copy of each message for its sender and for each receiver, drafts, attachments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.apps.file_system import find, full, put
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Body,
    Datetime,
    Email,
    Id,
    Length,
    Maybe,
    Path,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

GMAIL = App("gmail", "Read, search, write and sort your e-mail; keep drafts and attachments.")
GMAIL.accounts(View("", first_name=str, last_name=str, email=EMAIL, registered_on=DATE))
HEAD = View(
    "email", thread_id=Maybe(int), box=str, sender=EMAIL, recipients=[EMAIL], subject=str,
    attachment_names=[str], read=bool, starred=bool, archived=bool, sent_at=Maybe(DATETIME),
)  # fmt: skip
MAIL = HEAD.plus(body=str)
Subject = Annotated[str, Length(0, 200)]
SMALL = """Minutes of Monday|Please find the minutes below. The next meeting is on Thursday.
Holiday plans|We think of the first week of the month. Does that suit you?
Old photos|I found these while cleaning up. Remember the lake?
Budget question|Could you check the second line of the budget? It looks too high.
Choir practice|Practice is moved to Wednesday this week.
Recipe|Here is the lentil soup that you asked for: onions, lentils, cumin, patience.""".split("\n")


@GMAIL.seeding
def seed(b: Builder) -> None:
    """gmail.threads (subject), gmail.emails (owner_id: whose copy, box: inbox/sent/draft,
    thread_id, sender, recipients, subject, body, attachments: [{name, content}], read, starred,
    archived, sent_at). Orders' receipts, bills of households and small talk."""
    b.accounts("gmail")
    mails = sorted([*_receipts(b), *_bills(b), *_talk(b)], key=lambda mail: mail[0])
    rng = b.rng("gmail", "flags")
    for sent_at, sender, receiver, subject, body, attachments, answer in mails:
        thread = b.add("gmail.threads", subject=subject)["id"]
        mail = {
            "thread_id": thread, "sender": sender, "recipients": [receiver], "subject": subject,
            "body": body, "attachments": attachments, "sent_at": sent_at,
        }  # fmt: skip
        _deliver(b, rng, **mail)
        if answer:
            mail |= {"sender": receiver, "recipients": [sender], "attachments": []}
            _deliver(b, rng, **mail | {
                "subject": f"Re: {subject}", "body": answer, "sent_at": b.after(sent_at, 700),
            })  # fmt: skip
    for person in b.people:
        if rng.random() < 0.6:
            b.add(
                "gmail.emails", owner_id=person["id"], box="draft", thread_id=None,
                sender=person["email"], recipients=[], subject="Ideas for the weekend",
                body="Not finished yet.", attachments=[], read=True, starred=False,
                archived=False, sent_at=None,
            )  # fmt: skip


def _deliver(b: Builder, rng: Any, **mail: Any) -> None:
    owners = {person["email"]: person["id"] for person in b.people}
    for box, addresses in (("sent", [mail["sender"]]), ("inbox", mail["recipients"])):
        for owner in (owners[one] for one in addresses if one in owners):
            b.add(
                "gmail.emails", owner_id=owner, box=box, **mail, archived=rng.random() < 0.1,
                read=box == "sent" or rng.random() < 0.6, starred=rng.random() < 0.12,
            )  # fmt: skip


def _receipts(b: Builder) -> Iterable[tuple[Any, ...]]:
    shop = f"orders@{b.brand('amazon')}.com"
    for order in b.table("amazon.orders").values():
        lines = "\n".join(
            f"{i['quantity']} x {i['name']}: ${i['price']:.2f}" for i in order["items"]
        )
        text = f"Thank you for your order.\n{lines}\nTotal: ${order['total']:.2f}"
        receiver = b.people[order["owner_id"] - 1]["email"]
        name = f"receipt_{order['id']}.txt"
        files = [{"name": name, "content": text}]
        subject = f"Your order {order['id']}"
        yield order["ordered_at"], shop, receiver, subject, text, files, ""


def _bills(b: Builder) -> Iterable[tuple[Any, ...]]:
    """Who paid a household's bill writes to one of the others."""
    rng = b.rng("gmail", "bills")
    for outing in b.outings:
        if outing.household and rng.random() < 0.35:
            other = rng.choice([i for i in outing.members if i != outing.payer])
            text = f"The {outing.title} was ${outing.cents / 100:.2f} this time. I paid it."
            name = f"{outing.title.replace(' ', '_')}_{outing.when[:7]}.txt"
            files = [{"name": name, "content": text}] if rng.random() < 0.5 else []
            sender, receiver = (b.people[i - 1]["email"] for i in (outing.payer, other))
            answer = rng.choice(("", "Thanks, I will settle it.", "Noted!"))
            subject = f"{outing.title.capitalize()} {outing.when[:7]}"
            yield b.after(outing.when, 60), sender, receiver, subject, text, files, answer


def _talk(b: Builder) -> Iterable[tuple[Any, ...]]:
    rng = b.rng("gmail", "talk")
    for person in b.people:
        for _ in range(6):
            other = b.people[rng.choice(b.related(person["id"])) - 1]
            subject, body = rng.choice(SMALL).split("|")
            answer = rng.choice(("", "", "Sounds good.", "Let me think about it."))
            yield b.ago(rng, 0, 330), person["email"], other["email"], subject, body, [], answer


def _shown(row: Row) -> Answer:
    return MAIL(row, attachment_names=[file["name"] for file in row["attachments"]])


@GMAIL.api(
    "GET", "/emails", returns=[HEAD], search=("subject", "body", "sender", "recipients"),
    sort=("sent_at", "subject", "sender"),
)  # fmt: skip
def search_emails(
    ctx: Context,
    *,
    box: Literal["inbox", "sent", "draft"] = "inbox",
    sender: Email | None = None,
    recipient: Email | None = None,
    read: bool | None = None,
    starred: bool | None = None,
    archived: bool | None = None,
    sent_after: Datetime | None = None,
    sent_before: Datetime | None = None,
) -> Iterable[Answer]:
    """Search your mail, newest first; the text is found but not shown.

    box: where to look
    sender: only mails from this address
    recipient: only mails to this address
    read: only those that you have read, or not
    starred: only those with a star, or without
    archived: only those that are archived, or not
    sent_after: only mails of this time or later
    sent_before: only mails of this time or earlier
    """
    flags = {"read": read, "starred": starred, "archived": archived, "sender": sender}
    wanted = {key: value for key, value in flags.items() if value is not None}
    rows = ctx.mine("emails", box=box, **wanted)
    for row in sorted(rows, key=lambda row: (row["sent_at"] or "", row["id"]), reverse=True):
        if (recipient is None or recipient in row["recipients"]) and (
            (sent_after or "") <= (row["sent_at"] or "") <= (sent_before or "9999")
        ):
            yield _shown(row)


@GMAIL.api("GET", "/emails/{email_id}", returns=MAIL)
def show_email(ctx: Context, *, email_id: Id) -> Answer:
    """Show a mail with its text; it stays marked as it is.

    email_id: the mail's id
    """
    return _shown(ctx.own("emails", email_id))


@GMAIL.api("GET", "/threads/{thread_id}", returns=[MAIL])
def show_thread(ctx: Context, *, thread_id: Id) -> Answer:
    """Show your mails of one conversation, oldest first.

    thread_id: the conversation's id
    """
    ctx.find("threads", thread_id)
    rows = ctx.where("emails", thread_id=thread_id, owner_id=ctx.person)
    check(bool(rows), f"The thread with id {thread_id} is not yours.", 401)
    return [_shown(row) for row in rows]


def _attached(ctx: Context, paths: list[str] | None, token: str | None) -> list[dict[str, str]]:
    """The files to attach, from the sender's file system."""
    if not paths:
        return []
    check(len(paths) <= 10, "A mail can have at most 10 attachments.")
    person = ctx.holder(token or "", "file_system")
    found = []
    for path in paths:
        row = find(ctx, "files", full(ctx, path, person), person)
        check(row is not None, f"There is no file at {full(ctx, path, person)}.", 409)
        assert row is not None
        name = row["path"].rpartition("/")[2]
        found.append({"name": name, "content": row["content"]})
    return found


def _send(
    ctx: Context,
    recipients: list[str],
    subject: str,
    body: str,
    attachments: Any,
    thread: int | None,
) -> int:
    """Delivers a mail; the sender's copy's id. All checks come first."""
    addresses = list(dict.fromkeys(recipients))
    check(0 < len(addresses) <= 20, "A mail needs 1 to 20 recipients.")
    owners = [ctx.account_of(address) for address in addresses]
    thread = thread or ctx.insert("threads", subject=subject)["id"]
    mail = {
        "thread_id": thread, "sender": ctx.email_of(ctx.person), "recipients": addresses,
        "subject": subject, "body": body, "attachments": attachments, "starred": False,
        "archived": False, "sent_at": ctx.now,
    }  # fmt: skip
    copy = ctx.insert("emails", owner_id=ctx.person, box="sent", read=True, **mail)
    for owner in owners:
        ctx.insert("emails", owner_id=owner, box="inbox", read=False, **mail)
    return int(copy["id"])


def _sent(number: int) -> Answer:
    return {"message": "Email sent.", "email_id": number}


@GMAIL.api("POST", "/emails", returns=created("email"))
def send_email(
    ctx: Context,
    *,
    recipients: list[Email],
    subject: Subject = "",
    body: Body = "",
    attachment_paths: list[Path] | None = None,
    file_system_access_token: str | None = None,
) -> Answer:
    """Write and send a mail.

    recipients: the receivers' addresses
    subject: what it is about
    body: its text
    attachment_paths: files of the file_system app to attach
    file_system_access_token: the token that login to file_system gave; needed for attachments
    """
    files = _attached(ctx, attachment_paths, file_system_access_token)
    return _sent(_send(ctx, recipients, subject, body, files, None))


def _received(ctx: Context, number: int) -> Row:
    row = ctx.own("emails", number)
    check(row["box"] != "draft", "A draft has not been sent yet.")
    return row


@GMAIL.api("POST", "/emails/{email_id}/reply", returns=created("email"))
def reply_to_email(ctx: Context, *, email_id: Id, body: Body, to_all: bool = False) -> Answer:
    """Answer a mail, in its conversation.

    email_id: the mail's id
    body: the answer's text
    to_all: whether the other receivers get the answer too
    """
    row = _received(ctx, email_id)
    me = ctx.email_of(ctx.person)
    others = [one for one in row["recipients"] if one != me]
    to = others if row["sender"] == me else [row["sender"], *others * to_all]
    subject = row["subject"] if row["subject"].startswith("Re: ") else f"Re: {row['subject']}"[:200]
    return _sent(_send(ctx, to, subject, body, [], row["thread_id"]))


@GMAIL.api("POST", "/emails/{email_id}/forward", returns=created("email"))
def forward_email(
    ctx: Context, *, email_id: Id, recipients: list[Email], comment: Body = ""
) -> Answer:
    """Send a mail on to others, with its attachments.

    email_id: the mail's id
    recipients: the receivers' addresses
    comment: a text to put above the mail's own
    """
    row = _received(ctx, email_id)
    body = f"{comment}\n\n{row['body']}" if comment else row["body"]
    check(len(body) <= 10_000, "The text would be too long.")
    subject = f"Fwd: {row['subject']}"[:200]
    return _sent(_send(ctx, recipients, subject, body, row["attachments"], None))


@GMAIL.api("DELETE", "/emails/{email_id}")
def delete_email(ctx: Context, *, email_id: Id) -> Answer:
    """Delete your copy of a mail, or a draft.

    email_id: the mail's id
    """
    ctx.own("emails", email_id)
    ctx.delete("emails", email_id)
    return {"message": "Email deleted."}


def _flag(ctx: Context, number: int, **flag: bool) -> Answer:
    row = ctx.own("emails", number)
    [(name, value)] = flag.items()
    check(row[name] != value, f"The email is {'already' if value else 'not'} {name}.")
    ctx.update("emails", number, **flag)
    return {"message": f"The email is {'now' if value else 'no longer'} {name}."}


@GMAIL.api("POST", "/emails/{email_id}/read")
def mark_email_read(ctx: Context, *, email_id: Id) -> Answer:
    """Mark a mail as read.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, read=True)


@GMAIL.api("DELETE", "/emails/{email_id}/read")
def mark_email_unread(ctx: Context, *, email_id: Id) -> Answer:
    """Mark a mail as not read.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, read=False)


@GMAIL.api("POST", "/emails/{email_id}/star")
def star_email(ctx: Context, *, email_id: Id) -> Answer:
    """Give a mail a star.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, starred=True)


@GMAIL.api("DELETE", "/emails/{email_id}/star")
def unstar_email(ctx: Context, *, email_id: Id) -> Answer:
    """Take the star from a mail.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, starred=False)


@GMAIL.api("POST", "/emails/{email_id}/archive")
def archive_email(ctx: Context, *, email_id: Id) -> Answer:
    """Archive a mail: keep it out of the way.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, archived=True)


@GMAIL.api("DELETE", "/emails/{email_id}/archive")
def unarchive_email(ctx: Context, *, email_id: Id) -> Answer:
    """Bring a mail back from the archive.

    email_id: the mail's id
    """
    return _flag(ctx, email_id, archived=False)


@GMAIL.api("POST", "/emails/{email_id}/attachments")
def save_attachment(
    ctx: Context,
    *,
    email_id: Id,
    attachment_name: Annotated[str, Length(1, 200)],
    path: Path,
    overwrite: bool = False,
    file_system_access_token: str,
) -> Answer:
    """Save an attachment of a mail as a file.

    email_id: the mail's id
    attachment_name: which attachment
    path: the file's path in the file_system app
    overwrite: replace a file that is there already
    file_system_access_token: the token that login to file_system gave
    """
    row = ctx.own("emails", email_id)
    files = [file for file in row["attachments"] if file["name"] == attachment_name]
    check(bool(files), f"The email has no attachment named {attachment_name}.", 409)
    person = ctx.holder(file_system_access_token, "file_system")
    put(ctx, path, files[0]["content"], overwrite, person)
    return {"message": "Attachment saved."}


@GMAIL.api("POST", "/drafts", returns=created("email"))
def create_draft(
    ctx: Context, *, recipients: list[Email] | None = None, subject: Subject = "", body: Body = ""
) -> Answer:
    """Write a draft; it is sent only by send_draft.

    recipients: the receivers' addresses
    subject: what it is about
    body: its text
    """
    row = ctx.insert(
        "emails", owner_id=ctx.person, box="draft", thread_id=None,
        sender=ctx.email_of(ctx.person), recipients=recipients or [], subject=subject, body=body,
        attachments=[], read=True, starred=False, archived=False, sent_at=None,
    )  # fmt: skip
    return {"message": "Draft created.", "email_id": row["id"]}


def _draft(ctx: Context, number: int) -> Row:
    row = ctx.own("emails", number)
    check(row["box"] == "draft", f"The email with id {number} is no draft.")
    return row


@GMAIL.api("PATCH", "/drafts/{email_id}")
def update_draft(
    ctx: Context,
    *,
    email_id: Id,
    recipients: list[Email] | None = None,
    subject: Subject | None = None,
    body: Body | None = None,
) -> Answer:
    """Change a draft; what you leave out stays.

    email_id: the draft's id
    recipients: the receivers' addresses, in place of the old ones
    subject: what it is about
    body: its text
    """
    _draft(ctx, email_id)
    ctx.update("emails", email_id, recipients=recipients, subject=subject, body=body)
    return {"message": "Draft updated."}


@GMAIL.api("POST", "/drafts/{email_id}/send", returns=created("email"))
def send_draft(ctx: Context, *, email_id: Id) -> Answer:
    """Send a draft, which is gone after it.

    email_id: the draft's id
    """
    row = _draft(ctx, email_id)
    number = _send(ctx, row["recipients"], row["subject"], row["body"], row["attachments"], None)
    ctx.delete("emails", email_id)
    return _sent(number)
