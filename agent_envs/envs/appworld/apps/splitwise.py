"""Shared bills: groups, expenses split among members, and who owes whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Amount,
    Email,
    Id,
    Length,
    Text,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

SPLITWISE = App("splitwise", "Split shared bills in groups and keep track of who owes whom.")
SPLITWISE.accounts(View("", first_name=str, last_name=str, email=EMAIL, registered_on=DATE))
MEMBER = {"name": str, "email": EMAIL}
GROUP = View("group", name=str, members=[MEMBER], created_at=DATETIME)
SHARE = {"name": str, "email": EMAIL, "amount": float}
EXPENSE = View(
    "expense", group_id=int, description=str, amount=float, payer_email=EMAIL, payer_name=str,
    shares=[SHARE], created_at=DATETIME,
)  # fmt: skip
PAYMENT = View(
    "payment", group_id=int, payer_email=EMAIL, payer_name=str, receiver_email=EMAIL,
    receiver_name=str, amount=float, created_at=DATETIME,
)  # fmt: skip
COMMENT = View("comment", author_name=str, text=str, created_at=DATETIME)
# above 0: the person owes you
BALANCE = View("", name=str, email=EMAIL, amount=float)


@SPLITWISE.seeding
def seed(b: Builder) -> None:
    """splitwise.groups (members: ids, creator_id), .expenses (group_id, payer_id, description,
    amount, shares: [{person, amount}]), .payments (group_id, payer_id, receiver_id, amount),
    .comments (expense_id, author_id). A household's group holds its bills; companies of friends
    have groups too."""
    b.accounts("splitwise")
    rng = b.rng("splitwise", "groups")
    for table in ("groups", "expenses", "payments", "comments"):
        b.table(f"splitwise.{table}")
    groups: dict[tuple[int, tuple[int, ...]], int] = {}
    for outing in b.outings:
        key = outing.household, outing.members
        if outing.household == 0 and (len(outing.members) < 3 or rng.random() < 0.3):
            continue
        if key not in groups:
            names = " & ".join(b.people[i - 1]["first_name"] for i in outing.members[:2])
            kind = "Home" if outing.household else rng.choice(("Outings", "Club", "Crew"))
            group = b.add(
                "splitwise.groups", name=f"{kind} of {names}", members=list(outing.members),
                creator_id=outing.members[0], created_at=b.after(outing.when, -600),
            )  # fmt: skip
            groups[key] = group["id"]
        amount = outing.cents / 100
        expense = b.add(
            "splitwise.expenses", group_id=groups[key], payer_id=outing.payer,
            description=outing.title, amount=amount,
            shares=_equal(amount, outing.payer, outing.members),
            created_at=b.after(outing.when, rng.randint(5, 300)),
        )  # fmt: skip
        if rng.random() < 0.15:
            b.add(
                "splitwise.comments", expense_id=expense["id"], author_id=outing.members[-1],
                text=rng.choice(("Thanks for paying!", "Was it that much?", "Will settle soon.")),
                created_at=b.after(expense["created_at"], 200),
            )  # fmt: skip
        for share in expense["shares"]:
            if share["person"] != outing.payer and rng.random() < 0.4:
                b.add(
                    "splitwise.payments", group_id=groups[key], payer_id=share["person"],
                    receiver_id=outing.payer, amount=share["amount"],
                    created_at=b.after(expense["created_at"], rng.randint(900, 20_000)),
                )  # fmt: skip


def _equal(amount: float, payer: int, members: Iterable[int]) -> list[dict[str, Any]]:
    """Equal shares in whole cents; the payer bears the rest."""
    people = sorted(members)
    cents = round(amount * 100)
    each = cents // len(people)
    rest = cents - each * len(people) if payer in people else 0
    shares = [{"person": i, "amount": (each + rest * (i == payer)) / 100} for i in people]
    if payer not in people:  # then the first ones bear a cent each
        for share in shares[: cents - each * len(people)]:
            share["amount"] = (each + 1) / 100
    return shares


def _member(ctx: Context, group: int) -> Row:
    """The group; 401 unless you are in it."""
    row = ctx.find("groups", group)
    check(ctx.person in row["members"], f"You are not in the group with id {group}.", 401)
    return row


def _in(ctx: Context, table: str, number: int) -> Row:
    """An expense or payment of a group that you are in."""
    row = ctx.find(table, number)
    _member(ctx, row["group_id"])
    return row


def _group(ctx: Context, row: Row) -> Answer:
    members = [{"name": ctx.name_of(i), "email": ctx.email_of(i)} for i in row["members"]]
    return GROUP(row, members=members)


def _expense(ctx: Context, row: Row) -> Answer:
    shares = [
        {
            "name": ctx.name_of(s["person"]),
            "email": ctx.email_of(s["person"]),
            "amount": s["amount"],
        }
        for s in row["shares"]
    ]
    payer = row["payer_id"]
    return EXPENSE(
        row, shares=shares, payer_email=ctx.email_of(payer), payer_name=ctx.name_of(payer)
    )


def _groups(ctx: Context) -> list[Row]:
    return [row for row in ctx.rows("groups") if ctx.person in row["members"]]


@SPLITWISE.api("GET", "/groups", returns=[GROUP], search=("name",), sort=("name", "created_at"))
def show_groups(ctx: Context) -> Iterable[Answer]:
    """List the groups that you are in."""
    return (_group(ctx, row) for row in _groups(ctx))


@SPLITWISE.api("GET", "/groups/{group_id}", returns=GROUP)
def show_group(ctx: Context, *, group_id: Id) -> Answer:
    """Show a group.

    group_id: the group's id
    """
    return _group(ctx, _member(ctx, group_id))


@SPLITWISE.api("POST", "/groups", returns=created("group"))
def create_group(ctx: Context, *, name: Text, member_emails: list[Email] | None = None) -> Answer:
    """Make a group; you are in it.

    name: its name
    member_emails: e-mail addresses of the other members
    """
    members = {ctx.person, *map(ctx.account_of, member_emails or [])}
    row = ctx.insert(
        "groups", name=name, members=sorted(members), creator_id=ctx.person, created_at=ctx.now
    )
    return {"message": "Group created.", "group_id": row["id"]}


@SPLITWISE.api("PATCH", "/groups/{group_id}")
def rename_group(ctx: Context, *, group_id: Id, name: Text) -> Answer:
    """Give a group another name.

    group_id: the group's id
    name: the new name
    """
    _member(ctx, group_id)
    ctx.update("groups", group_id, name=name)
    return {"message": "Group renamed."}


@SPLITWISE.api("POST", "/groups/{group_id}/members")
def add_group_member(ctx: Context, *, group_id: Id, email: Email) -> Answer:
    """Add somebody to a group.

    group_id: the group's id
    email: the person's e-mail address
    """
    members = _member(ctx, group_id)["members"]
    person = ctx.account_of(email)
    check(person not in members, f"{email} is already in the group.")
    ctx.update("groups", group_id, members=sorted([*members, person]))
    return {"message": "Member added."}


@SPLITWISE.api("DELETE", "/groups/{group_id}/members")
def remove_group_member(ctx: Context, *, group_id: Id, email: Email) -> Answer:
    """Take somebody (or yourself) out of a group; nobody with debts there can go.

    group_id: the group's id
    email: the person's e-mail address
    """
    members = _member(ctx, group_id)["members"]
    person = ctx.account_of(email)
    check(person in members, f"{email} is not in the group.")
    check(
        not any(_debts(ctx, person, [group_id]).values()), f"{email} has open debts in the group."
    )
    ctx.update("groups", group_id, members=[i for i in members if i != person])
    return {"message": "Member removed."}


@SPLITWISE.api(
    "GET", "/expenses", returns=[EXPENSE], search=("description", "payer_name"),
    sort=("amount", "created_at"),
)  # fmt: skip
def show_expenses(
    ctx: Context, *, group_id: Id | None = None, payer_email: Email | None = None
) -> Iterable[Answer]:
    """List expenses of your groups.

    group_id: only those of this group
    payer_email: only those that this person paid
    """
    groups = _groups(ctx) if group_id is None else [_member(ctx, group_id)]
    for group in groups:
        for row in ctx.where("expenses", group_id=group["id"]):
            if payer_email in (None, ctx.email_of(row["payer_id"])):
                yield _expense(ctx, row)


@SPLITWISE.api("GET", "/expenses/{expense_id}", returns=EXPENSE)
def show_expense(ctx: Context, *, expense_id: Id) -> Answer:
    """Show an expense with everybody's share.

    expense_id: the expense's id
    """
    return _expense(ctx, _in(ctx, "expenses", expense_id))


@SPLITWISE.api("POST", "/expenses", returns=created("expense"))
def add_expense(
    ctx: Context,
    *,
    group_id: Id,
    description: Text,
    amount: Amount,
    payer_email: Email | None = None,
    sharer_emails: list[Email] | None = None,
    share_amounts: list[Amount] | None = None,
) -> Answer:
    """Add an expense to a group; it is split equally unless you say how.

    group_id: the group's id
    description: what it was for
    amount: how much in all
    payer_email: who paid; null means you
    sharer_emails: who shares it; null means all members
    share_amounts: the share of each of sharer_emails, in their order; they must add up
    """
    members = _member(ctx, group_id)["members"]
    payer = ctx.person if payer_email is None else ctx.account_of(payer_email)
    sharers = list(map(ctx.account_of, sharer_emails)) if sharer_emails else members
    check({payer, *sharers} <= {*members}, "The payer and all who share must be in the group.")
    check(len({*sharers}) == len(sharers), "sharer_emails names somebody twice.")
    check(round(amount, 2) == amount, "The amount must not have more than 2 decimals.")
    shares = _equal(amount, payer, sharers)
    if share_amounts is not None:
        check(sharer_emails is not None, "share_amounts needs sharer_emails.")
        check(len(share_amounts) == len(sharers), "There must be one share for each sharer.")
        check(round(sum(share_amounts), 2) == amount, "The shares do not add up to the amount.")
        pairs = zip(sharers, share_amounts, strict=True)
        shares = [{"person": i, "amount": float(part)} for i, part in pairs]
    row = ctx.insert(
        "expenses", group_id=group_id, payer_id=payer, description=description,
        amount=float(amount), shares=shares, created_at=ctx.now,
    )  # fmt: skip
    return {"message": "Expense added.", "expense_id": row["id"]}


@SPLITWISE.api("PATCH", "/expenses/{expense_id}")
def update_expense(
    ctx: Context, *, expense_id: Id, description: Text | None = None, amount: Amount | None = None
) -> Answer:
    """Change an expense; a new amount is split equally among those who share it.

    expense_id: the expense's id
    description: what it was for
    amount: how much in all
    """
    row = _in(ctx, "expenses", expense_id)
    shares = None
    if amount is not None:
        check(round(amount, 2) == amount, "The amount must not have more than 2 decimals.")
        amount = float(amount)
        shares = _equal(amount, row["payer_id"], [share["person"] for share in row["shares"]])
    ctx.update("expenses", expense_id, description=description, amount=amount, shares=shares)
    return {"message": "Expense updated."}


@SPLITWISE.api("DELETE", "/expenses/{expense_id}")
def delete_expense(ctx: Context, *, expense_id: Id) -> Answer:
    """Delete an expense, for all who share it.

    expense_id: the expense's id
    """
    _in(ctx, "expenses", expense_id)
    for comment in ctx.where("comments", expense_id=expense_id):
        ctx.delete("comments", comment["id"])
    ctx.delete("expenses", expense_id)
    return {"message": "Expense deleted."}


@SPLITWISE.api("GET", "/expenses/{expense_id}/comments", returns=[COMMENT], sort=("created_at",))
def show_expense_comments(ctx: Context, *, expense_id: Id) -> Iterable[Answer]:
    """List the comments on an expense.

    expense_id: the expense's id
    """
    _in(ctx, "expenses", expense_id)
    for row in ctx.where("comments", expense_id=expense_id):
        yield COMMENT(row, author_name=ctx.name_of(row["author_id"]))


@SPLITWISE.api("POST", "/expenses/{expense_id}/comments", returns=created("comment"))
def add_expense_comment(
    ctx: Context, *, expense_id: Id, text: Annotated[str, Length(1, 300)]
) -> Answer:
    """Comment on an expense.

    expense_id: the expense's id
    text: what to say
    """
    _in(ctx, "expenses", expense_id)
    row = ctx.insert(
        "comments", expense_id=expense_id, author_id=ctx.person, text=text, created_at=ctx.now
    )
    return {"message": "Comment added.", "comment_id": row["id"]}


def _debts(ctx: Context, person: int, groups: Iterable[int]) -> dict[int, float]:
    """What each other person owes to this one (below 0: the other way round)."""
    owed: dict[int, float] = {}
    for group in groups:
        for row in ctx.where("expenses", group_id=group):
            for share in row["shares"]:
                _owe(owed, person, share["person"], row["payer_id"], share["amount"])
        for row in ctx.where("payments", group_id=group):
            _owe(owed, person, row["receiver_id"], row["payer_id"], row["amount"])
    return {other: round(amount, 2) + 0.0 for other, amount in owed.items()}


def _owe(owed: dict[int, float], person: int, debtor: int, creditor: int, amount: float) -> None:
    if debtor != creditor and person in (debtor, creditor):
        other = debtor if person == creditor else creditor
        owed[other] = owed.get(other, 0.0) + (amount if person == creditor else -amount)


@SPLITWISE.api(
    "GET", "/balances", returns=[BALANCE], search=("name", "email"), sort=("amount", "name")
)
def show_balances(ctx: Context, *, group_id: Id | None = None) -> Iterable[Answer]:
    """List what others owe you (above 0) or you owe them (below 0), without those who are even.

    group_id: only the debts of this group; null adds up all groups
    """
    groups = _groups(ctx) if group_id is None else [_member(ctx, group_id)]
    for other, amount in sorted(_debts(ctx, ctx.person, [g["id"] for g in groups]).items()):
        if amount:
            yield {"name": ctx.name_of(other), "email": ctx.email_of(other), "amount": amount}


@SPLITWISE.api("GET", "/payments", returns=[PAYMENT], sort=("amount", "created_at"))
def show_payments(ctx: Context, *, group_id: Id | None = None) -> Iterable[Answer]:
    """List the payments that settled debts in your groups.

    group_id: only those of this group
    """
    groups = _groups(ctx) if group_id is None else [_member(ctx, group_id)]
    for group in groups:
        for row in ctx.where("payments", group_id=group["id"]):
            names = {}
            for side in ("payer", "receiver"):
                names[f"{side}_email"] = ctx.email_of(row[f"{side}_id"])
                names[f"{side}_name"] = ctx.name_of(row[f"{side}_id"])
            yield PAYMENT(row, **names)


@SPLITWISE.api("POST", "/payments", returns=created("payment"))
def record_payment(
    ctx: Context, *, group_id: Id, other_email: Email, amount: Amount, received: bool = False
) -> Answer:
    """Note that you paid another member back (or were paid back) outside this app.

    group_id: the group's id
    other_email: the other member
    amount: how much
    received: whether you got the money
    """
    members = _member(ctx, group_id)["members"]
    other = ctx.account_of(other_email)
    check(other in members and other != ctx.person, f"{other_email} is no other member.")
    check(round(amount, 2) == amount, "The amount must not have more than 2 decimals.")
    payer, receiver = (other, ctx.person) if received else (ctx.person, other)
    row = ctx.insert(
        "payments", group_id=group_id, payer_id=payer, receiver_id=receiver,
        amount=float(amount), created_at=ctx.now,
    )  # fmt: skip
    return {"message": "Payment recorded.", "payment_id": row["id"]}


@SPLITWISE.api("DELETE", "/payments/{payment_id}")
def delete_payment(ctx: Context, *, payment_id: Id) -> Answer:
    """Delete a recorded payment that you made or got.

    payment_id: the payment's id
    """
    row = _in(ctx, "payments", payment_id)
    ends = (row["payer_id"], row["receiver_id"])
    check(ctx.person in ends, f"The payment with id {payment_id} is not yours.", 401)
    ctx.delete("payments", payment_id)
    return {"message": "Payment deleted."}
