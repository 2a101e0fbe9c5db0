"""Tasks with money between people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    amount_text,
    complete,
    contacts_of,
    family,
    full_name,
    login,
    one_contact,
)
from agent_envs.envs.appworld.tasks.goals import Goal, Values, same_items

NOTES = ("pizza night", "bus tickets", "the plant pot", "half of the taxi", "tennis court")
RELATIONS = ("friend", "coworker", "roommate", "sibling")
VENMO = "access_token=token_venmo"


def _accounts(draw: Draw, people: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those who have an account."""
    return [p for p in people if draw.db.get("venmo.accounts", p["id"]) is not None]


def _balance(draw: Draw, person: int) -> float:
    row = draw.db.get("venmo.accounts", person)
    assert row is not None  # callers ask for people with accounts
    return float(row["balance"])


def paid_from_balance(
    draw: Draw, paid: Sequence[tuple[int, float, str | None]]
) -> tuple[list[Any], list[Any]]:
    """What payments (receiver, amount, note) from the balance insert and update."""
    inserted: list[tuple[str, Values]] = []
    moved: dict[int, float] = {}
    for receiver, amount, note in paid:
        values = {"sender_id": draw.me, "receiver_id": receiver, "amount": amount}
        inserted.append(
            ("venmo.transactions", values if note is None else {**values, "note": note})
        )
        moved[receiver] = moved.get(receiver, 0.0) + amount
        moved[draw.me] = moved.get(draw.me, 0.0) - amount
    if _balance(draw, draw.me) + moved.get(draw.me, 0.0) < 0:
        raise NoTask
    updated = [
        ("venmo.accounts", person, {"balance": round(_balance(draw, person) + amount, 2)})
        for person, amount in moved.items()
    ]
    return inserted, updated


@family("phone", "venmo", difficulty=1, phrases=(
    "Send {name} ${amount} on Venmo, from my balance, with the note {note!r}.",
    "Pay ${amount} to {name} by Venmo, out of the balance; the note should be {note!r}.",
    "On Venmo, transfer ${amount} from my balance to {name} and write {note!r} as the note.",
))  # fmt: skip
def pay_contact(draw: Draw) -> Plan:
    person = draw.pick(_accounts(draw, draw.related(draw.pick(RELATIONS))))
    amount, note = float(draw.rng.randrange(300, 2500)) / 100, draw.pick(NOTES)
    inserted, updated = paid_from_balance(draw, [(person["id"], amount, note)])
    return Plan(
        {"name": full_name(person), "amount": amount_text(amount), "note": note},
        Goal(inserted=inserted, updated=updated),
        (
            login("phone"),
            one_contact(full_name(person)) + "\nprint(contact)",
            login("venmo"),
            f"apis.venmo.create_transaction({VENMO}, receiver_email=contact['email'], amount={amount}, note={note!r})",
            complete(),
        ),
    )


@family("phone", "venmo", difficulty=2, phrases=(
    "How much have I sent to {name} on Venmo in total?",
    "Add up all the money that I paid {name} through Venmo. What is the sum?",
    "What do all my Venmo payments to {name} come to?",
))  # fmt: skip
def total_sent(draw: Draw) -> Plan:
    person = draw.pick(draw.related(draw.pick(RELATIONS)))
    sent = draw.db.where("venmo.transactions", sender_id=draw.me, receiver_id=person["id"])
    if len(sent) < 2:
        raise NoTask
    return Plan(
        {"name": full_name(person)},
        Goal(answer=round(sum(row["amount"] for row in sent), 2)),
        (
            login("phone"),
            one_contact(full_name(person)),
            login("venmo"),
            all_pages(
                "payments",
                f"apis.venmo.show_transactions({VENMO}, direction='sent', other_email=contact['email']",
            )
            + "\ntotal = round(sum(p['amount'] for p in payments), 2)\nprint(total)",
            complete("total"),
        ),
    )


@family("venmo", difficulty=2, phrases=(
    "Who got the largest single payment that I ever sent on Venmo? Give the full name.",
    "To whom did I make my biggest Venmo payment? Answer with the full name.",
    "Name the person whom I sent the most money in one Venmo payment.",
))  # fmt: skip
def largest_payment(draw: Draw) -> Plan:
    sent = sorted(
        draw.db.where("venmo.transactions", sender_id=draw.me), key=lambda row: -row["amount"]
    )
    if len(sent) < 6 or sent[0]["amount"] == sent[1]["amount"]:
        raise NoTask
    return Plan(
        {},
        Goal(answer=full_name(draw.person(sent[0]["receiver_id"]))),
        (
            login("venmo"),
            all_pages("payments", f"apis.venmo.show_transactions({VENMO}, direction='sent'")
            + "\ntop = max(payments, key=lambda p: p['amount'])\nprint(top)",
            complete("top['receiver_name']"),
        ),
    )


def _pending(draw: Draw) -> list[Mapping[str, Any]]:
    return draw.db.where("venmo.payment_requests", payer_id=draw.me, status="pending")


def _answered(row: Mapping[str, Any], status: str) -> tuple[str, int, Values]:
    return "venmo.payment_requests", row["id"], {"status": status, "amount": row["amount"]}


@family("phone", "venmo", difficulty=3, phrases=(
    "Approve all pending Venmo requests from my {relation}s, from my balance, and deny all the others.",
    "On Venmo, pay whatever my {relation}s ask me for, out of the balance, and refuse everybody else's requests.",
    "Go through the payment requests on Venmo that wait for me: approve those of my {relation}s, paying from the "
    "balance, deny the rest.",
))  # fmt: skip
def answer_requests(draw: Draw) -> Plan:
    relation = draw.pick(RELATIONS)
    theirs = {person["id"] for person in draw.related(relation)}
    waiting = _pending(draw)
    good = [row for row in waiting if row["requester_id"] in theirs]
    bad = [row for row in waiting if row["requester_id"] not in theirs]
    if not good or not bad:
        raise NoTask
    inserted, updated = paid_from_balance(
        draw, [(row["requester_id"], row["amount"], row["note"]) for row in good]
    )
    answers = [_answered(row, "approved") for row in good] + [
        _answered(row, "denied") for row in bad
    ]
    return Plan(
        {"relation": relation},
        Goal(inserted=inserted, updated=[*updated, *answers]),
        (
            login("phone"),
            contacts_of(relation) + "\nemails = {contact['email'] for contact in contacts}",
            login("venmo"),
            all_pages("waiting", f"apis.venmo.show_payment_requests({VENMO}, status='pending'")
            + "\nfor request in waiting:\n"
            "    number = request['payment_request_id']\n"
            "    if request['requester_email'] in emails:\n"
            f"        apis.venmo.approve_payment_request({VENMO}, payment_request_id=number)\n"
            "    else:\n"
            f"        apis.venmo.deny_payment_request({VENMO}, payment_request_id=number)",
            complete(),
        ),
    )


@family("venmo", difficulty=2, phrases=(
    "Take back all Venmo requests of mine that nobody has answered yet.",
    "Delete the payment requests that I sent on Venmo and that are still pending.",
    "I no longer want the money: withdraw each of my pending requests on Venmo.",
))  # fmt: skip
def withdraw_requests(draw: Draw) -> Plan:
    mine = draw.db.where("venmo.payment_requests", requester_id=draw.me)
    waiting = [row for row in mine if row["status"] == "pending"]
    if not waiting or len(waiting) == len(mine):
        raise NoTask
    return Plan(
        {},
        Goal(deleted=[("venmo.payment_requests", row["id"]) for row in waiting]),
        (
            login("venmo"),
            all_pages(
                "asked",
                f"apis.venmo.show_payment_requests({VENMO}, direction='sent', status='pending'",
            )
            + "\nfor request in asked:\n"
            f"    apis.venmo.delete_payment_request({VENMO}, payment_request_id=request['payment_request_id'])",
            complete(),
        ),
    )


@family("phone", "venmo", difficulty=2, phrases=(
    "Ask each of my {relation}s for ${amount} on Venmo, with the note {note!r}.",
    "Request ${amount} from all my {relation}s through Venmo; note: {note!r}.",
    "All my {relation}s owe me ${amount}. Send each a Venmo request with the note {note!r}.",
))  # fmt: skip
def request_all(draw: Draw) -> Plan:
    relation = draw.pick(RELATIONS)
    people = draw.related(relation)
    contacts = [c for c in draw.mine("phone.contacts") if relation in c["relationships"]]
    if not 1 < len(people) == len(contacts) == len(_accounts(draw, people)):
        raise NoTask
    amount, note = draw.rng.randrange(4, 60) / 2, draw.pick(NOTES)
    values = {"requester_id": draw.me, "amount": amount, "note": note, "status": "pending"}
    return Plan(
        {"relation": relation, "amount": amount_text(amount), "note": note},
        Goal(
            inserted=[("venmo.payment_requests", {**values, "payer_id": p["id"]}) for p in people]
        ),
        (
            login("phone"),
            contacts_of(relation) + "\nprint(len(contacts))",
            login("venmo"),
            "for contact in contacts:\n"
            f"    apis.venmo.create_payment_request({VENMO}, payer_email=contact['email'], amount={amount}, "
            f"note={note!r})",
            complete(),
        ),
    )


@family("phone", "venmo", difficulty=3, phrases=(
    "{name} texted me what my share of the {title} is. Pay it on Venmo, from my balance, with the note {title!r}.",
    "Look up in my messages what I owe {name} for the {title}, and send that from my Venmo balance, note {title!r}.",
    "{name} paid for the {title} and wrote me my share. Settle it out of my Venmo balance; the note is {title!r}.",
))  # fmt: skip
def pay_share(draw: Draw) -> Plan:
    texts = [
        row
        for row in draw.db.where("phone.text_messages", receiver_id=draw.me)
        if "Your share is about $" in row["text"]
    ]
    row = draw.pick(texts)
    title, _, rest = (
        row["text"].removeprefix("I paid for the ").partition(". Your share is about $")
    )
    alike = [
        t for t in texts if t["sender_id"] == row["sender_id"] and f"the {title}." in t["text"]
    ]
    person = draw.person(row["sender_id"])
    known = [c for c in draw.mine("phone.contacts") if c["phone_number"] == person["phone_number"]]
    if len(alike) != 1 or not known or not _accounts(draw, [person]):
        raise NoTask
    amount = float(rest.rstrip("."))
    inserted, updated = paid_from_balance(draw, [(person["id"], amount, title)])
    return Plan(
        {"name": full_name(person), "title": title},
        Goal(inserted=inserted, updated=updated),
        (
            login("phone"),
            one_contact(full_name(person)),
            all_pages(
                "texts",
                "apis.phone.search_text_messages(access_token=token_phone, direction='received', "
                "phone_number=contact['phone_number']",
            )
            + f"\ntext = [t['text'] for t in texts if 'I paid for the {title}.' in t['text']][0]\nprint(text)",
            "amount = float(text.rpartition('$')[2].rstrip('.'))",
            login("venmo"),
            f"apis.venmo.create_transaction({VENMO}, receiver_email=contact['email'], amount=amount, note={title!r})",
            complete(),
        ),
    )


@family("phone", "venmo", difficulty=2, phrases=(
    "Add all my {relation}s from the phone to my Venmo friends, as far as they are not yet.",
    "Every {relation} in my contacts should be a Venmo friend of mine. Add the missing ones.",
    "Make sure that I am connected on Venmo with each of my {relation}s.",
))  # fmt: skip
def befriend(draw: Draw) -> Plan:
    relation = draw.pick(RELATIONS)
    people = draw.related(relation)
    contacts = [c for c in draw.mine("phone.contacts") if relation in c["relationships"]]
    account = draw.db.get("venmo.accounts", draw.me)
    assert account is not None  # supervisors have all accounts
    have, wanted = set(account["friends"]), {person["id"] for person in people}
    if len(people) != len(contacts) or len(_accounts(draw, people)) != len(people):
        raise NoTask
    if not wanted - have or not wanted & have:
        raise NoTask
    return Plan(
        {"relation": relation},
        Goal(
            updated=[
                ("venmo.accounts", draw.me, {
                    "friends": same_items(sorted(have | wanted)), "balance": account["balance"],
                })
            ]
        ),
        (
            login("phone"),
            contacts_of(relation),
            login("venmo"),
            all_pages("friends", f"apis.venmo.search_users({VENMO}, friends_only=True")
            + "\nemails = {friend['email'] for friend in friends}",
            "for contact in contacts:\n"
            "    if contact['email'] not in emails:\n"
            f"        apis.venmo.add_friend({VENMO}, email=contact['email'])",
            complete(),
        ),
    )  # fmt: skip


@family("venmo", difficulty=1, phrases=(
    "Put ${amount} from my {card} card into my Venmo balance.",
    "Top up my Venmo account by ${amount}, charged to the {card} card.",
    "Add ${amount} to the balance on Venmo with my {card} card.",
))  # fmt: skip
def top_up(draw: Draw) -> Plan:
    cards = draw.mine("venmo.payment_cards")
    card, amount = draw.pick(cards), float(draw.rng.randrange(2, 30) * 5)
    if len(cards) < 2 or sum(c["name"] == card["name"] for c in cards) > 1:
        raise NoTask
    move = {
        "owner_id": draw.me,
        "payment_card_id": card["id"],
        "direction": "deposit",
        "amount": amount,
    }
    balance = round(_balance(draw, draw.me) + amount, 2)
    return Plan(
        {"amount": amount_text(amount), "card": card["name"]},
        Goal(
            inserted=[("venmo.transfers", move)],
            updated=[("venmo.accounts", draw.me, {"balance": balance})],
        ),
        (
            login("venmo"),
            f"cards = apis.venmo.show_payment_cards({VENMO})\n"
            f"card = [c for c in cards if c['name'] == {card['name']!r}][0]\nprint(card)",
            f"apis.venmo.add_to_balance({VENMO}, amount={amount}, payment_card_id=card['payment_card_id'])",
            complete(),
        ),
    )


@family("venmo", difficulty=2, phrases=(
    "Like all payments in my Venmo feed that are about {word!r}.",
    "In the Venmo feed of my friends, give a like to each payment whose note mentions {word!r}.",
    "Everything in my Venmo feed with {word!r} in the note deserves a like from me.",
))  # fmt: skip
def like_feed(draw: Draw) -> Plan:
    account = draw.db.get("venmo.accounts", draw.me)
    assert account is not None  # supervisors have all accounts
    feed = [
        row for friend in account["friends"]
        for row in draw.db.where("venmo.transactions", sender_id=friend)
        if not row["private"]
    ]  # fmt: skip
    word = draw.pick(
        ("groceries", "team lunch", "coffee round", "bowling night", "cinema tickets", "water bill")
    )
    rows = [row for row in feed if word in row["note"] and draw.me not in row["likes"]]
    liked = [row for row in feed if word in row["note"] and draw.me in row["likes"]]
    if not 1 <= len(rows) <= 12 or liked or len(rows) == len(feed):
        raise NoTask
    return Plan(
        {"word": word},
        Goal(
            updated=[
                ("venmo.transactions", row["id"], {
                    "likes": same_items([*row["likes"], draw.me]), "amount": row["amount"],
                })
                for row in rows
            ]
        ),
        (
            login("venmo"),
            all_pages("feed", f"apis.venmo.show_social_feed({VENMO}")
            + "\nfor payment in feed:\n"
            f"    if {word!r} in payment['note']:\n"
            f"        apis.venmo.like_transaction({VENMO}, transaction_id=payment['transaction_id'])",
            complete(),
        ),
    )  # fmt: skip
