"""Tasks with shared bills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_envs.envs.appworld.tasks.families.payments import paid_from_balance
from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    amount_text,
    complete,
    family,
    full_name,
    login,
    one_contact,
)
from agent_envs.envs.appworld.tasks.goals import Goal, same_items

BILLS = "access_token=token_splitwise"


def _groups(draw: Draw) -> list[Mapping[str, Any]]:
    mine = [row for row in draw.db.rows("splitwise.groups") if draw.me in row["members"]]
    names = [row["name"] for row in mine]
    return [row for row in mine if names.count(row["name"]) == 1]


def _debts(draw: Draw, group: int) -> dict[int, float]:
    """What the others owe to the person in a group (below 0: the other way round)."""
    owed: dict[int, float] = {}
    moves = [
        (share["person"], row["payer_id"], share["amount"])
        for row in draw.db.where("splitwise.expenses", group_id=group)
        for share in row["shares"]
    ] + [
        (row["receiver_id"], row["payer_id"], row["amount"])
        for row in draw.db.where("splitwise.payments", group_id=group)
    ]
    for debtor, creditor, amount in moves:
        if debtor != creditor and draw.me in (debtor, creditor):
            other, sign = (debtor, 1) if creditor == draw.me else (creditor, -1)
            owed[other] = owed.get(other, 0.0) + sign * amount
    return {other: round(amount, 2) for other, amount in owed.items() if abs(amount) > 0.004}


def _group(name: str) -> str:
    return (
        all_pages("groups", f"apis.splitwise.show_groups({BILLS}")
        + f"\ngroup = [g for g in groups if g['name'] == {name!r}][0]\nprint(group)"
    )


@family("splitwise", difficulty=1, phrases=(
    "What do the expenses that I paid in the Splitwise group {name!r} come to?",
    "Add up the expenses that I paid in {name!r} on Splitwise.",
    "In the Splitwise group {name!r}, what is the sum of the expenses with me as the payer?",
))  # fmt: skip
def group_paid(draw: Draw) -> Plan:
    group = draw.pick(_groups(draw))
    rows = draw.db.where("splitwise.expenses", group_id=group["id"])
    mine = [row["amount"] for row in rows if row["payer_id"] == draw.me]
    if not 1 < len(mine) < len(rows):
        raise NoTask
    return Plan(
        {"name": group["name"]},
        Goal(answer=round(sum(mine), 2)),
        (
            login("splitwise"),
            _group(group["name"]),
            "me = apis.supervisor.show_profile()['email']\n"
            + all_pages(
                "expenses",
                f"apis.splitwise.show_expenses({BILLS}, group_id=group['group_id'], payer_email=me",
            )
            + "\ntotal = round(sum(e['amount'] for e in expenses), 2)\nprint(total)",
            complete("total"),
        ),
    )


@family("splitwise", difficulty=2, phrases=(
    "Who owes me the most on Splitwise, over all groups? Give the full name.",
    "Looking at all my Splitwise groups together, which person has the largest debt to me?",
    "Name the one who owes me most on Splitwise.",
))  # fmt: skip
def largest_debt(draw: Draw) -> Plan:
    owed: dict[int, float] = {}
    for group in draw.db.rows("splitwise.groups"):
        if draw.me in group["members"]:
            for other, amount in _debts(draw, group["id"]).items():
                owed[other] = owed.get(other, 0.0) + amount
    ranked = sorted(owed.items(), key=lambda item: -item[1])
    if len(ranked) < 3 or ranked[0][1] < ranked[1][1] + 0.05 or ranked[0][1] <= 0:
        raise NoTask
    return Plan(
        {},
        Goal(answer=full_name(draw.person(ranked[0][0]))),
        (
            login("splitwise"),
            f"balances = apis.splitwise.show_balances({BILLS}, sort_by='-amount', page_limit=20)\nprint(balances)",
            complete("balances[0]['name']"),
        ),
    )


def _alike(parts: list[float]) -> bool:
    """Whether shares are equal, but for cents that cannot be split."""
    return max(parts) - min(parts) < 0.01 * len(parts)


@family("splitwise", difficulty=2, phrases=(
    "I paid ${amount} for {what} for the Splitwise group {name!r}. Add it, split equally among all.",
    "Add an expense to {name!r} on Splitwise: {what}, ${amount}, paid by me, shared equally by everybody.",
    "Put {what} (${amount}, I paid) into the Splitwise group {name!r}; all members share it alike.",
))  # fmt: skip
def add_expense(draw: Draw) -> Plan:
    group = draw.pick(_groups(draw))
    amount, what = (
        float(draw.rng.randrange(20, 90)),
        draw.pick(("new curtains", "firewood", "printer ink", "tickets")),
    )
    people = sorted(group["members"])
    return Plan(
        {"name": group["name"], "amount": amount_text(amount), "what": what},
        Goal(inserted=[("splitwise.expenses", {
            "group_id": group["id"], "payer_id": draw.me, "description": what, "amount": amount,
            "shares": lambda found: sorted(share["person"] for share in found) == people
            and _alike([share["amount"] for share in found]),
        })]),
        (
            login("splitwise"),
            _group(group["name"]),
            f"apis.splitwise.add_expense({BILLS}, group_id=group['group_id'], description={what!r}, amount={amount})",
            complete(),
        ),
    )  # fmt: skip


@family("splitwise", "venmo", difficulty=3, phrases=(
    "Pay everybody whom I owe in the Splitwise group {name!r} back from my Venmo balance, with the group's name as the note, and "
    "record the payments in Splitwise.",
    "Settle my debts in {name!r}: send each creditor on Splitwise the money from my Venmo balance (note: {name!r}), then "
    "record each payment in the group.",
    "In the Splitwise group {name!r} I want to be even with those I owe. Send them what I owe from my Venmo balance, note {name!r}, and "
    "enter that on Splitwise as well.",
))  # fmt: skip
def settle_group(draw: Draw) -> Plan:
    group = draw.pick(_groups(draw))
    debts = {other: -amount for other, amount in _debts(draw, group["id"]).items() if amount < 0}
    if not debts or any(draw.db.get("venmo.accounts", other) is None for other in debts):
        raise NoTask
    inserted, updated = paid_from_balance(
        draw, [(other, amount, group["name"]) for other, amount in debts.items()]
    )
    recorded = [
        (
            "splitwise.payments",
            {
                "group_id": group["id"],
                "payer_id": draw.me,
                "receiver_id": other,
                "amount": amount,
            },
        )
        for other, amount in debts.items()
    ]
    return Plan(
        {"name": group["name"]},
        Goal(inserted=[*inserted, *recorded], updated=updated),
        (
            login("splitwise"),
            _group(group["name"]),
            login("venmo"),
            f"balances = apis.splitwise.show_balances({BILLS}, group_id=group['group_id'], page_limit=20)\n"
            "for balance in balances:\n"
            "    if balance['amount'] < 0:\n"
            "        apis.venmo.create_transaction(access_token=token_venmo, receiver_email=balance['email'], "
            "amount=-balance['amount'], note=group['name'])\n"
            f"        apis.splitwise.record_payment({BILLS}, group_id=group['group_id'], "
            "other_email=balance['email'], amount=-balance['amount'])",
            complete(),
        ),
    )  # fmt: skip


@family("splitwise", "phone", difficulty=3, phrases=(
    "Send everybody who owes me more than ${limit} on Splitwise, over all groups, the text message {text!r}.",
    "Who owes me over ${limit} on Splitwise in total? Text each of them: {text!r}",
    "Remind all who are more than ${limit} in my debt on Splitwise: text them {text!r}",
))  # fmt: skip
def remind_debtors(draw: Draw) -> Plan:
    owed: dict[int, float] = {}
    for group in draw.db.rows("splitwise.groups"):
        if draw.me in group["members"]:
            for other, amount in _debts(draw, group["id"]).items():
                owed[other] = owed.get(other, 0.0) + amount
    limit = draw.pick((10, 20, 30, 50))
    known = {row["phone_number"] for row in draw.mine("phone.contacts")}
    late = [other for other, amount in owed.items() if round(amount, 2) > limit]
    if not 0 < len(late) < len(owed) or any(
        draw.person(i)["phone_number"] not in known for i in late
    ):
        raise NoTask
    text = draw.pick(("Please pay me back soon.", "Could we settle our bill this week?"))
    sent = [
        ("phone.text_messages", {"sender_id": draw.me, "receiver_id": i, "text": text})
        for i in late
    ]
    return Plan(
        {"limit": limit, "text": text},
        Goal(inserted=sent),
        (
            login("splitwise"),
            all_pages("balances", f"apis.splitwise.show_balances({BILLS}")
            + f"\nemails = {{b['email'] for b in balances if b['amount'] > {limit}}}\nprint(emails)",
            login("phone"),
            all_pages("contacts", "apis.phone.search_contacts(access_token=token_phone"),
            "for contact in contacts:\n"
            "    if contact['email'] in emails:\n"
            "        apis.phone.send_text_message(access_token=token_phone, phone_number=contact['phone_number'], "
            f"text={text!r})",
            complete(),
        ),
    )


@family("splitwise", "phone", difficulty=2, phrases=(
    "Add {person} to my Splitwise group {name!r}.",
    "{person} should be a member of {name!r} on Splitwise. Add them.",
    "Please put {person} (from my contacts) into the Splitwise group {name!r}.",
))  # fmt: skip
def add_member(draw: Draw) -> Plan:
    group = draw.pick(_groups(draw))
    people = [
        p
        for kind in ("friend", "coworker")
        for p in draw.related(kind)
        if p["id"] not in group["members"]
    ]
    person = draw.pick(
        [p for p in people if draw.db.get("splitwise.accounts", p["id"]) is not None]
    )
    return Plan(
        {"person": full_name(person), "name": group["name"]},
        Goal(updated=[("splitwise.groups", group["id"], {
            "name": group["name"], "members": same_items([*group["members"], person["id"]]),
        })]),
        (
            login("phone"),
            one_contact(full_name(person)),
            login("splitwise"),
            _group(group["name"]),
            f"apis.splitwise.add_group_member({BILLS}, group_id=group['group_id'], email=contact['email'])",
            complete(),
        ),
    )  # fmt: skip
