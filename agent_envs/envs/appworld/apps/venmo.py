"""Payments between people: a balance, transfers, requests, friends, cards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Amount,
    Datetime,
    Email,
    Id,
    Length,
    Maybe,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

VENMO = App("venmo", "Send money to people you know, ask for it, and see who paid whom for what.")
PROFILE = View(
    "", first_name=str, last_name=str, email=EMAIL, balance=float, registered_on=DATE,
    friend_count=int,
)  # fmt: skip
VENMO.accounts(PROFILE)
USER = View("", first_name=str, last_name=str, email=EMAIL, is_friend=bool)
PAYMENT = View(
    "transaction", sender_email=EMAIL, sender_name=str, receiver_email=EMAIL, receiver_name=str,
    amount=float, note=str, private=bool, like_count=int, created_at=DATETIME,
)  # fmt: skip
COMMENT = View("comment", author_name=str, text=str, created_at=DATETIME)
REQUEST = View(
    "payment_request", requester_email=EMAIL, requester_name=str, payer_email=EMAIL,
    payer_name=str, amount=float, note=str, status=str, created_at=DATETIME,
    answered_at=Maybe(DATETIME),
)  # fmt: skip
CARD = View("payment_card", name=str, digits=str, expires_on=DATE)
MOVE = View("transfer", direction=str, amount=float, payment_card_id=int, created_at=DATETIME)
Note = Annotated[str, Length(0, 300)]
OWN = ("amount", "created_at")
THANKS = "Thanks!|No problem|That was fun|Got it|Anytime".split("|")


@VENMO.seeding
def seed(b: Builder) -> None:
    """venmo.accounts (balance, friends: ids), .payment_cards (owner_id), .transactions (sender_id,
    receiver_id, likes: ids), .comments (transaction_id, author_id), .payment_requests
    (requester_id, payer_id, status), .transfers (owner_id)."""
    rng = b.rng("venmo", "accounts")
    for account in b.accounts("venmo"):
        person = account["id"]
        known = b.related(person, "friend", "roommate", "sibling", "coworker")
        b.table("venmo.accounts")[person] = {
            **account,
            "balance": rng.randint(3_000, 90_000) / 100,
            "friends": sorted(rng.sample(known, len(known) * 2 // 3)),
            "friend_count": len(known) * 2 // 3,
        }
    for card in b.table("supervisor.payment_cards").values():
        b.add(
            "venmo.payment_cards", **{key: card[key] for key in card if key not in ("id", "cents")}
        )
    _seed_payments(b)
    rng = b.rng("venmo", "transfers")
    b.table("venmo.transfers")
    for card in list(b.table("venmo.payment_cards").values()):
        b.add(
            "venmo.transfers",
            owner_id=card["owner_id"],
            payment_card_id=card["id"],
            direction=rng.choice(("deposit", "withdrawal")),
            amount=float(rng.randint(2, 40) * 10),
            created_at=b.ago(rng, 2, 300),
        )


def _seed_payments(b: Builder) -> None:
    """Half of all shares of an outing are paid back here; some are still asked for."""
    rng = b.rng("venmo", "payments")
    for table in ("transactions", "comments", "payment_requests"):
        b.table(f"venmo.{table}")
    for outing in b.outings:
        share = round(outing.cents / 100 / len(outing.members), 2)
        for member in outing.members:
            draw = rng.random()
            if member == outing.payer or draw > 0.62:
                continue
            note = rng.choice(("{}", "my share of {}", "for {}")).format(outing.title)
            if draw < 0.1:
                status = rng.choice(("pending", "pending", "denied", "approved"))
                asked = b.after(outing.when, rng.randint(60, 3000))
                b.add(
                    "venmo.payment_requests", requester_id=outing.payer, payer_id=member,
                    amount=share, note=note, status=status, created_at=asked,
                    answered_at=None if status == "pending" else b.after(asked, rng.randint(9, 999)),
                )  # fmt: skip
                if status != "approved":
                    continue
            likes = sorted(rng.sample(outing.members, rng.randint(0, 1)))
            paid = b.add(
                "venmo.transactions", sender_id=member, receiver_id=outing.payer, amount=share,
                note=note, private=rng.random() < 0.2, likes=likes, like_count=len(likes),
                created_at=b.after(outing.when, rng.randint(1000, 9000)),
            )  # fmt: skip
            if rng.random() < 0.25:
                b.add(
                    "venmo.comments", transaction_id=paid["id"], author_id=outing.payer,
                    text=rng.choice(THANKS), created_at=b.after(paid["created_at"], 45),
                )  # fmt: skip


def _money(ctx: Context, amount: float) -> float:
    check(round(amount, 2) == amount, "The amount must not have more than 2 decimals.")
    return float(amount)


def _add_balance(ctx: Context, person: int, amount: float) -> None:
    balance = round(ctx.find("accounts", person)["balance"] + amount, 2)
    ctx.update("accounts", person, balance=balance)


def _pay(
    ctx: Context, receiver: int, amount: float, note: str, card: int | None, private: bool
) -> Row:
    """Moves money from you to the receiver; all checks come first."""
    amount = _money(ctx, amount)
    check(receiver != ctx.person, "You cannot pay yourself.")
    if card is not None:
        ctx.own("payment_cards", card)
    else:
        enough = ctx.find("accounts", ctx.person)["balance"] >= amount
        check(enough, "Your balance is too low; add to it first or pay with a card.")
        _add_balance(ctx, ctx.person, -amount)
    _add_balance(ctx, receiver, amount)
    return ctx.insert(
        "transactions", sender_id=ctx.person, receiver_id=receiver, amount=amount, note=note,
        private=private, likes=[], like_count=0, created_at=ctx.now,
    )  # fmt: skip


def _ends(ctx: Context, row: Row, *sides: str) -> dict[str, str]:
    found = {}
    for side in sides:
        found[f"{side}_email"] = ctx.email_of(row[f"{side}_id"])
        found[f"{side}_name"] = ctx.name_of(row[f"{side}_id"])
    return found


def _payment(ctx: Context, row: Row) -> Answer:
    return PAYMENT(row, **_ends(ctx, row, "sender", "receiver"))


def _visible(ctx: Context, number: int) -> Row:
    row = ctx.find("transactions", number)
    seen = not row["private"] or ctx.person in (row["sender_id"], row["receiver_id"])
    check(seen, f"The transaction with id {number} is private.", 401)
    return row


@VENMO.api("GET", "/balance", returns={"balance": float})
def show_balance(ctx: Context) -> Answer:
    """Show how much money is in your account."""
    return {"balance": ctx.find("accounts", ctx.person)["balance"]}


@VENMO.api("POST", "/balance/deposits", returns=created("transfer"))
def add_to_balance(ctx: Context, *, amount: Amount, payment_card_id: Id) -> Answer:
    """Bring money from a card into your account.

    amount: how much
    payment_card_id: the card
    """
    return _transfer(ctx, "deposit", amount, payment_card_id)


@VENMO.api("POST", "/balance/withdrawals", returns=created("transfer"))
def withdraw_from_balance(ctx: Context, *, amount: Amount, payment_card_id: Id) -> Answer:
    """Bring money from your account to a card.

    amount: how much
    payment_card_id: the card
    """
    enough = ctx.find("accounts", ctx.person)["balance"] >= amount
    check(enough, "Your balance is too low for that.")
    return _transfer(ctx, "withdrawal", amount, payment_card_id)


def _transfer(ctx: Context, direction: str, amount: float, card: int) -> Answer:
    amount = _money(ctx, amount)
    ctx.own("payment_cards", card)
    _add_balance(ctx, ctx.person, amount if direction == "deposit" else -amount)
    row = ctx.insert(
        "transfers", owner_id=ctx.person, payment_card_id=card, direction=direction,
        amount=amount, created_at=ctx.now,
    )  # fmt: skip
    return {"message": f"The {direction} is done.", "transfer_id": row["id"]}


@VENMO.api("GET", "/balance/transfers", returns=[MOVE], sort=OWN)
def show_transfers(ctx: Context) -> Iterable[Answer]:
    """List what went between your account and your cards."""
    return map(MOVE, ctx.mine("transfers"))


@VENMO.api("GET", "/payment_cards", returns=[CARD])
def show_payment_cards(ctx: Context) -> Answer:
    """List your cards."""
    return [CARD(row) for row in ctx.mine("payment_cards")]


@VENMO.api(
    "GET", "/users", returns=[USER], search=("first_name", "last_name", "email"),
    sort=("first_name", "last_name"),
)  # fmt: skip
def search_users(ctx: Context, *, friends_only: bool = False) -> Iterable[Answer]:
    """Search the people who have an account.

    friends_only: only your friends
    """
    friends = ctx.find("accounts", ctx.person)["friends"]
    for row in ctx.rows("accounts"):
        if row["id"] != ctx.person and (not friends_only or row["id"] in friends):
            yield USER(row, is_friend=row["id"] in friends)


def _befriend(ctx: Context, email: str, wanted: bool) -> None:
    other = ctx.account_of(email)
    friends = ctx.find("accounts", ctx.person)["friends"]
    check(other != ctx.person, "That is your own address.")
    check((other in friends) != wanted, f"{email} is {'already' if wanted else 'not'} your friend.")
    friends = sorted({*friends, other} if wanted else {*friends} - {other})
    ctx.update("accounts", ctx.person, friends=friends, friend_count=len(friends))


@VENMO.api("POST", "/friends")
def add_friend(ctx: Context, *, email: Email) -> Answer:
    """Add somebody to your friends.

    email: the person's e-mail address
    """
    _befriend(ctx, email, True)
    return {"message": "Friend added."}


@VENMO.api("DELETE", "/friends")
def remove_friend(ctx: Context, *, email: Email) -> Answer:
    """Remove somebody from your friends.

    email: the person's e-mail address
    """
    _befriend(ctx, email, False)
    return {"message": "Friend removed."}


@VENMO.api(
    "GET", "/transactions", returns=[PAYMENT], search=("note", "sender_name", "receiver_name"),
    sort=OWN,
)  # fmt: skip
def show_transactions(
    ctx: Context,
    *,
    direction: Literal["sent", "received"] | None = None,
    other_email: Email | None = None,
    created_after: Datetime | None = None,
    created_before: Datetime | None = None,
) -> Iterable[Answer]:
    """List your own payments.

    direction: only those that you sent, or received
    other_email: only those with this person at the other end
    created_after: only payments of this time or later
    created_before: only payments of this time or earlier
    """
    sent = ctx.where("transactions", sender_id=ctx.person) if direction != "received" else []
    got = ctx.where("transactions", receiver_id=ctx.person) if direction != "sent" else []
    for row in sorted(sent + got, key=lambda row: row["id"]):
        shown = _payment(ctx, row)
        ends = (shown["sender_email"], shown["receiver_email"])
        if (other_email is None or other_email in ends) and (
            (created_after or "") <= row["created_at"] <= (created_before or "9999")
        ):
            yield shown


@VENMO.api("GET", "/feed", returns=[PAYMENT], sort=(*OWN, "like_count"))
def show_social_feed(ctx: Context) -> Iterable[Answer]:
    """List the payments of your friends that are not private, newest first."""
    friends = ctx.find("accounts", ctx.person)["friends"]
    rows = [row for friend in friends for row in ctx.where("transactions", sender_id=friend)]
    rows.sort(key=lambda row: (row["created_at"], row["id"]), reverse=True)
    return (_payment(ctx, row) for row in rows if not row["private"])


@VENMO.api("GET", "/transactions/{transaction_id}", returns=PAYMENT)
def show_transaction(ctx: Context, *, transaction_id: Id) -> Answer:
    """Show one payment.

    transaction_id: the payment's id
    """
    return _payment(ctx, _visible(ctx, transaction_id))


@VENMO.api("POST", "/transactions", returns=created("transaction"))
def create_transaction(
    ctx: Context,
    *,
    receiver_email: Email,
    amount: Amount,
    note: Note = "",
    payment_card_id: Id | None = None,
    private: bool = False,
) -> Answer:
    """Send money to somebody, from your balance or a card.

    receiver_email: who gets it
    amount: how much
    note: what it is for
    payment_card_id: the card to pay with; null pays from the balance
    private: whether only the two of you can see it
    """
    row = _pay(ctx, ctx.account_of(receiver_email), amount, note, payment_card_id, private)
    return {"message": "Payment sent.", "transaction_id": row["id"]}


def _like(ctx: Context, number: int, wanted: bool) -> None:
    row = _visible(ctx, number)
    have = ctx.person in row["likes"]
    check(have != wanted, f"You {'already like' if wanted else 'do not like'} this transaction.")
    likes = sorted({*row["likes"], ctx.person} if wanted else {*row["likes"]} - {ctx.person})
    ctx.update("transactions", number, likes=likes, like_count=len(likes))


@VENMO.api("POST", "/transactions/{transaction_id}/like")
def like_transaction(ctx: Context, *, transaction_id: Id) -> Answer:
    """Like a payment.

    transaction_id: the payment's id
    """
    _like(ctx, transaction_id, True)
    return {"message": "Transaction liked."}


@VENMO.api("DELETE", "/transactions/{transaction_id}/like")
def unlike_transaction(ctx: Context, *, transaction_id: Id) -> Answer:
    """Take your like from a payment.

    transaction_id: the payment's id
    """
    _like(ctx, transaction_id, False)
    return {"message": "Like removed."}


@VENMO.api(
    "GET", "/transactions/{transaction_id}/comments", returns=[COMMENT], sort=("created_at",)
)
def show_transaction_comments(ctx: Context, *, transaction_id: Id) -> Iterable[Answer]:
    """List the comments on a payment.

    transaction_id: the payment's id
    """
    _visible(ctx, transaction_id)
    for row in ctx.where("comments", transaction_id=transaction_id):
        yield COMMENT(row, author_name=ctx.name_of(row["author_id"]))


@VENMO.api("POST", "/transactions/{transaction_id}/comments", returns=created("comment"))
def add_transaction_comment(
    ctx: Context, *, transaction_id: Id, text: Annotated[str, Length(1, 300)]
) -> Answer:
    """Comment on a payment.

    transaction_id: the payment's id
    text: what to say
    """
    _visible(ctx, transaction_id)
    row = ctx.insert(
        "comments", transaction_id=transaction_id, author_id=ctx.person, text=text,
        created_at=ctx.now,
    )  # fmt: skip
    return {"message": "Comment added.", "comment_id": row["id"]}


@VENMO.api(
    "GET", "/payment_requests", returns=[REQUEST],
    search=("note", "requester_name", "payer_name"), sort=OWN,
)  # fmt: skip
def show_payment_requests(
    ctx: Context,
    *,
    direction: Literal["sent", "received"] = "received",
    status: Literal["pending", "approved", "denied"] | None = None,
) -> Iterable[Answer]:
    """List payment requests.

    direction: those that you sent, or those that ask you to pay
    status: only those that stand so
    """
    side = "requester_id" if direction == "sent" else "payer_id"
    for row in ctx.where("payment_requests", **{side: ctx.person}):
        if status is None or row["status"] == status:
            yield REQUEST(row, **_ends(ctx, row, "requester", "payer"))


@VENMO.api("POST", "/payment_requests", returns=created("payment_request"))
def create_payment_request(
    ctx: Context, *, payer_email: Email, amount: Amount, note: Note = ""
) -> Answer:
    """Ask somebody for money.

    payer_email: who should pay
    amount: how much
    note: what it is for
    """
    payer = ctx.account_of(payer_email)
    check(payer != ctx.person, "You cannot ask yourself for money.")
    row = ctx.insert(
        "payment_requests", requester_id=ctx.person, payer_id=payer, amount=_money(ctx, amount),
        note=note, status="pending", created_at=ctx.now, answered_at=None,
    )  # fmt: skip
    return {"message": "Payment request sent.", "payment_request_id": row["id"]}


def _open_request(ctx: Context, number: int, side: str) -> Row:
    row = ctx.find("payment_requests", number)
    verb = "answer" if side == "payer_id" else "delete"
    told = f"The payment request with id {number} is not yours to {verb}."
    check(row[side] == ctx.person, told, 401)
    check(row["status"] == "pending", f"The payment request is already {row['status']}.")
    return row


@VENMO.api("POST", "/payment_requests/{payment_request_id}/approve", returns=created("transaction"))
def approve_payment_request(
    ctx: Context, *, payment_request_id: Id, payment_card_id: Id | None = None
) -> Answer:
    """Pay what a request asks for.

    payment_request_id: the request's id
    payment_card_id: the card to pay with; null pays from the balance
    """
    asked = _open_request(ctx, payment_request_id, "payer_id")
    paid = _pay(ctx, asked["requester_id"], asked["amount"], asked["note"], payment_card_id, False)
    ctx.update("payment_requests", asked["id"], status="approved", answered_at=ctx.now)
    return {"message": "Payment request approved.", "transaction_id": paid["id"]}


@VENMO.api("POST", "/payment_requests/{payment_request_id}/deny")
def deny_payment_request(ctx: Context, *, payment_request_id: Id) -> Answer:
    """Refuse a request.

    payment_request_id: the request's id
    """
    _open_request(ctx, payment_request_id, "payer_id")
    ctx.update("payment_requests", payment_request_id, status="denied", answered_at=ctx.now)
    return {"message": "Payment request denied."}


@VENMO.api("DELETE", "/payment_requests/{payment_request_id}")
def delete_payment_request(ctx: Context, *, payment_request_id: Id) -> Answer:
    """Take back a request that you sent and that nobody has answered.

    payment_request_id: the request's id
    """
    _open_request(ctx, payment_request_id, "requester_id")
    ctx.delete("payment_requests", payment_request_id)
    return {"message": "Payment request deleted."}
