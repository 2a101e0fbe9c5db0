"""Contacts, text messages and alarms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    PHONE,
    TIME,
    Date,
    Datetime,
    Email,
    Id,
    Length,
    Maybe,
    Phone,
    Text,
    Time,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

PHONE_APP = App("phone", "Your phone: contacts with their relations to you, messages and alarms.")
PHONE_APP.accounts(
    View("", first_name=str, last_name=str, phone_number=PHONE, registered_on=DATE),
    "phone number",
)
CONTACT = View(
    "contact", first_name=str, last_name=str, phone_number=PHONE, email=Maybe(EMAIL),
    relationships=[str], birthday=Maybe(DATE), address=Maybe(str), created_at=DATETIME,
)  # fmt: skip
MESSAGE = View(
    "text_message", sender_number=PHONE, sender_name=str, receiver_number=PHONE,
    receiver_name=str, text=str, sent_at=DATETIME,
)  # fmt: skip
ALARM = View("alarm", label=str, time=TIME, repeat_days=[str], enabled=bool, snooze_minutes=int)
Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
Relation = Literal[
    "friend", "coworker", "manager", "sibling", "parent", "child", "roommate", "other"
]
SmallTalk = Annotated[str, Length(1, 1000)]
CHAT = """Are you free on Saturday?|Running ten minutes late, sorry!|Did you watch the game?
Thanks again for your help.|Can you call me tonight?|The parcel came to us by mistake.
Happy to help any time.|See you tomorrow then.|I left my umbrella at yours.
How was the trip?|That recipe was great.|Don't forget the meeting.""".replace("\n", "|").split("|")


@PHONE_APP.seeding
def seed(b: Builder) -> None:
    """phone.contacts (owner_id, person_id, ...), phone.text_messages (sender_id, receiver_id,
    text, sent_at, hidden_for), phone.alarms (owner_id, ...)."""
    for account in b.accounts("phone", by="phone_number"):
        b.table("phone.accounts")[account["id"]] = {
            **account,
            "phone_number": account["username"],
        }
    for row in b.table("people.relations").values():
        person = b.people[row["other_id"] - 1]
        address = person["address"]
        b.add(
            "phone.contacts",
            owner_id=row["person_id"],
            first_name=person["first_name"],
            last_name=person["last_name"],
            phone_number=person["phone_number"],
            email=person["email"],
            relationships=[row["kind"]],
            birthday=person["birthday"],
            address=f"{address['street_address']}, {address['zip_code']} {address['city']}",
            created_at=b.ago(b.rng("phone", f"contact {row['id']}"), 366, 1000),
        )
    for sent_at, sender, receiver, text in sorted(_messages(b)):
        b.add(
            "phone.text_messages",
            sender_id=sender,
            receiver_id=receiver,
            text=text,
            sent_at=sent_at,
            hidden_for=[],
        )
    rng = b.rng("phone", "alarms")
    for person in b.people:
        for label in rng.sample(("Wake up", "Medicine", "Gym", "School run", "Stand-up"), 3):
            b.add(
                "phone.alarms",
                owner_id=person["id"],
                label=label,
                time=f"{rng.randint(5, 20):02d}:{rng.choice((0, 15, 30, 45)):02d}",
                repeat_days=rng.choice((DAYS[:5], DAYS[5:], DAYS, [rng.choice(DAYS)])),
                enabled=rng.random() < 0.7,
                snooze_minutes=rng.choice((5, 10, 15)),
            )


def _messages(b: Builder) -> Iterable[tuple[str, int, int, str]]:
    rng = b.rng("phone", "messages")
    for outing in b.outings:
        others = [member for member in outing.members if member != outing.payer]
        if rng.random() < 0.5:
            other = rng.choice(others)
            share = outing.cents / 100 / len(outing.members)
            text = f"I paid for the {outing.title}. Your share is about ${share:.2f}."
            yield b.after(outing.when, rng.randint(30, 600)), outing.payer, other, text
    for person in b.people:
        for other in rng.sample(b.related(person["id"]), 4):
            yield b.ago(rng, 0, 330), person["id"], other, rng.choice(CHAT)


@PHONE_APP.api(
    "GET",
    "/contacts",
    returns=[CONTACT],
    search=("first_name", "last_name", "email", "phone_number", "address"),
    sort=("first_name", "last_name", "birthday", "created_at"),
)
def search_contacts(ctx: Context, *, relationship: Relation | None = None) -> Iterable[Answer]:
    """Search your contacts.

    relationship: only those who are this to you
    """
    for row in ctx.mine("contacts"):
        if relationship is None or relationship in row["relationships"]:
            yield CONTACT(row)


@PHONE_APP.api("GET", "/contacts/{contact_id}", returns=CONTACT)
def show_contact(ctx: Context, *, contact_id: Id) -> Answer:
    """Show one of your contacts.

    contact_id: the contact's id
    """
    return CONTACT(ctx.own("contacts", contact_id))


@PHONE_APP.api("POST", "/contacts", returns=created("contact"))
def add_contact(
    ctx: Context,
    *,
    first_name: Text,
    last_name: Text,
    phone_number: Phone,
    email: Email | None = None,
    relationships: list[Relation] | None = None,
    birthday: Date | None = None,
    address: Text | None = None,
) -> Answer:
    """Add a contact.

    first_name: first name
    last_name: last name
    phone_number: phone number
    email: e-mail address
    relationships: what the person is to you
    birthday: day of birth
    address: postal address
    """
    taken = ctx.mine("contacts", phone_number=phone_number)
    check(not taken, f"You already have a contact with the phone number {phone_number}.")
    row = ctx.insert(
        "contacts",
        owner_id=ctx.person,
        first_name=first_name,
        last_name=last_name,
        phone_number=phone_number,
        email=email,
        relationships=relationships or [],
        birthday=birthday,
        address=address,
        created_at=ctx.now,
    )
    return {"message": "Contact added.", "contact_id": row["id"]}


@PHONE_APP.api("PATCH", "/contacts/{contact_id}")
def update_contact(
    ctx: Context,
    *,
    contact_id: Id,
    phone_number: Phone | None = None,
    email: Email | None = None,
    relationships: list[Relation] | None = None,
    address: Text | None = None,
) -> Answer:
    """Change a contact; what you leave out stays.

    contact_id: the contact's id
    phone_number: the new phone number
    email: the new e-mail address
    relationships: what the person is to you, in place of what stands there
    address: the new postal address
    """
    ctx.own("contacts", contact_id)
    ctx.update(
        "contacts", contact_id, phone_number=phone_number, email=email,
        relationships=relationships, address=address,
    )  # fmt: skip
    return {"message": "Contact updated."}


@PHONE_APP.api("DELETE", "/contacts/{contact_id}")
def delete_contact(ctx: Context, *, contact_id: Id) -> Answer:
    """Delete a contact.

    contact_id: the contact's id
    """
    ctx.own("contacts", contact_id)
    ctx.delete("contacts", contact_id)
    return {"message": "Contact deleted."}


def _message(ctx: Context, row: Row) -> Answer:
    people = {}
    for side in ("sender", "receiver"):
        person = row[f"{side}_id"]
        people[f"{side}_number"] = ctx.find("people.people", person)["phone_number"]
        people[f"{side}_name"] = ctx.name_of(person)
    return MESSAGE(row, **people)


def _messages_of(ctx: Context) -> list[Row]:
    """Messages to and from you that you have not deleted, newest first."""
    me = ctx.person
    found = ctx.where("text_messages", sender_id=me) + ctx.where("text_messages", receiver_id=me)
    rows = {row["id"]: row for row in found if me not in row["hidden_for"]}
    return sorted(rows.values(), key=lambda row: (row["sent_at"], row["id"]), reverse=True)


@PHONE_APP.api(
    "GET",
    "/text_messages",
    returns=[MESSAGE],
    search=("text", "sender_name", "receiver_name"),
    sort=("sent_at",),
)
def search_text_messages(
    ctx: Context,
    *,
    phone_number: Phone | None = None,
    direction: Literal["sent", "received"] | None = None,
    sent_after: Datetime | None = None,
    sent_before: Datetime | None = None,
) -> Iterable[Answer]:
    """Search the messages that you sent or received, newest first.

    phone_number: only messages with this number at the other end
    direction: only those that you sent, or received
    sent_after: only messages of this time or later
    sent_before: only messages of this time or earlier
    """
    for row in _messages_of(ctx):
        sent = row["sender_id"] == ctx.person
        other = ctx.find("people.people", row["receiver_id" if sent else "sender_id"])
        if (
            (phone_number is None or other["phone_number"] == phone_number)
            and (direction is None or (direction == "sent") == sent)
            and (sent_after or "") <= row["sent_at"] <= (sent_before or "9999")
        ):
            yield _message(ctx, row)


@PHONE_APP.api("GET", "/text_messages/{text_message_id}", returns=MESSAGE)
def show_text_message(ctx: Context, *, text_message_id: Id) -> Answer:
    """Show a message.

    text_message_id: the message's id
    """
    return _message(ctx, _message_row(ctx, text_message_id))


def _message_row(ctx: Context, number: int) -> Row:
    row = ctx.find("text_messages", number)
    ends = (row["sender_id"], row["receiver_id"])
    check(ctx.person in ends, f"The text message with id {number} is not yours.", 401)
    hidden = ctx.person in row["hidden_for"]
    check(not hidden, f"The text message with id {number} does not exist.", 409)
    return row


@PHONE_APP.api("POST", "/text_messages", returns=created("text_message"))
def send_text_message(ctx: Context, *, phone_number: Phone, text: SmallTalk) -> Answer:
    """Send a message.

    phone_number: the receiver's number
    text: what to say
    """
    people = ctx.where("people.people", phone_number=phone_number)
    check(bool(people), f"Nobody has the phone number {phone_number}.", 409)
    check(people[0]["id"] != ctx.person, "You cannot send a message to yourself.")
    row = ctx.insert(
        "text_messages", sender_id=ctx.person, receiver_id=people[0]["id"], text=text,
        sent_at=ctx.now, hidden_for=[],
    )  # fmt: skip
    return {"message": "Message sent.", "text_message_id": row["id"]}


@PHONE_APP.api("DELETE", "/text_messages/{text_message_id}")
def delete_text_message(ctx: Context, *, text_message_id: Id) -> Answer:
    """Delete a message from your phone; the other end keeps it.

    text_message_id: the message's id
    """
    row = _message_row(ctx, text_message_id)
    ctx.update("text_messages", row["id"], hidden_for=[*row["hidden_for"], ctx.person])
    return {"message": "Message deleted."}


@PHONE_APP.api("GET", "/alarms", returns=[ALARM], search=("label",), sort=("time", "label"))
def show_alarms(ctx: Context, *, enabled: bool | None = None) -> Iterable[Answer]:
    """List your alarms.

    enabled: only those that are on, or off
    """
    rows = ctx.mine("alarms") if enabled is None else ctx.mine("alarms", enabled=enabled)
    return map(ALARM, rows)


@PHONE_APP.api("POST", "/alarms", returns=created("alarm"))
def create_alarm(
    ctx: Context,
    *,
    time: Time,
    label: Text = "Alarm",
    repeat_days: list[Day] | None = None,
    snooze_minutes: Id = 10,
) -> Answer:
    """Set an alarm; it is on at once.

    time: when it rings
    label: what it is for
    repeat_days: on which days; none means once
    snooze_minutes: how long a snooze lasts
    """
    row = ctx.insert(
        "alarms", owner_id=ctx.person, label=label, time=time, repeat_days=repeat_days or [],
        enabled=True, snooze_minutes=snooze_minutes,
    )  # fmt: skip
    return {"message": "Alarm set.", "alarm_id": row["id"]}


@PHONE_APP.api("PATCH", "/alarms/{alarm_id}")
def update_alarm(
    ctx: Context,
    *,
    alarm_id: Id,
    time: Time | None = None,
    label: Text | None = None,
    repeat_days: list[Day] | None = None,
    enabled: bool | None = None,
    snooze_minutes: Id | None = None,
) -> Answer:
    """Change an alarm; what you leave out stays.

    alarm_id: the alarm's id
    time: when it rings
    label: what it is for
    repeat_days: on which days
    enabled: whether it is on
    snooze_minutes: how long a snooze lasts
    """
    ctx.own("alarms", alarm_id)
    ctx.update(
        "alarms", alarm_id, time=time, label=label, repeat_days=repeat_days, enabled=enabled,
        snooze_minutes=snooze_minutes,
    )  # fmt: skip
    return {"message": "Alarm updated."}


@PHONE_APP.api("DELETE", "/alarms/{alarm_id}")
def delete_alarm(ctx: Context, *, alarm_id: Id) -> Answer:
    """Delete an alarm.

    alarm_id: the alarm's id
    """
    ctx.own("alarms", alarm_id)
    ctx.delete("alarms", alarm_id)
    return {"message": "Alarm deleted."}
