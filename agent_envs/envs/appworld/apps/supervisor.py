"""The person whom the agent works for: profile, addresses, cards, passwords and the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from agent_envs.envs.appworld.api import Answer, App, Context, branded, check
from agent_envs.envs.appworld.fields import DATE, EMAIL, PHONE, View

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

SUPERVISOR = App(
    "supervisor", "Your supervisor's details, passwords and the task that you were given."
)
PROFILE = View(
    "", first_name=str, last_name=str, email=EMAIL, phone_number=PHONE, birthday=DATE, employer=str
)
ADDRESS = View("", label=str, street_address=str, city=str, zip_code=str)
CARD = View("payment_card", name=str, digits=str, expires_on=DATE)


@SUPERVISOR.seeding
def seed(b: Builder) -> None:
    """supervisor.payment_cards (owner_id, name, digits, expires_on, cents), and an empty table
    supervisor.tasks (status, answer, completed_at)."""
    rng = b.rng("supervisor", "cards")
    b.table("supervisor.tasks")
    for person in b.people:
        for name in rng.sample(
            ("Everyday debit", "Savings debit", "Travel credit"), rng.randint(2, 3)
        ):
            b.add(
                "supervisor.payment_cards",
                owner_id=person["id"],
                name=name,
                digits="".join(rng.choices("0123456789", k=16)),
                expires_on=f"{b.now.year + rng.choice((0, 1, 2, 3))}-{rng.randint(1, 12):02d}-01",
                cents=rng.randint(100, 900_000),
            )


@SUPERVISOR.api("GET", "/task", auth=False, returns={"instruction": str})
def show_active_task(ctx: Context) -> Answer:
    """Show the task that you were given."""
    check(ctx.db.task is not None, "There is no active task.", 409)
    assert ctx.db.task is not None
    return {"instruction": ctx.db.task["instruction"]}


@SUPERVISOR.api("POST", "/task/complete", auth=False)
def complete_task(
    ctx: Context,
    *,
    answer: object | None = None,
    status: Literal["success", "fail"] = "success",
) -> Answer:
    """Mark the active task as done. Nothing can be done after it.

    answer: the answer, where the task asks for one; null for other tasks
    status: whether you did what the task asks for
    """
    check(not list(ctx.rows("tasks")), "The active task is already marked complete.", 409)
    ctx.insert("tasks", status=status, answer=answer, completed_at=ctx.now)
    return {"message": "Marked the active task complete."}


@SUPERVISOR.api("GET", "/profile", auth=False, returns=PROFILE)
def show_profile(ctx: Context) -> Answer:
    """Show your supervisor's name and contact details."""
    row = ctx.find("people.people", ctx.supervisor)
    return PROFILE(row, employer=row["firm"])


@SUPERVISOR.api("GET", "/addresses", auth=False, returns=[ADDRESS])
def show_addresses(ctx: Context) -> Answer:
    """Show your supervisor's addresses."""
    return [ADDRESS(ctx.find("people.people", ctx.supervisor)["address"] | {"id": 0}, label="home")]


@SUPERVISOR.api("GET", "/payment_cards", auth=False, returns=[CARD])
def show_payment_cards(ctx: Context) -> Answer:
    """Show your supervisor's payment cards."""
    return [CARD(row) for row in ctx.where("payment_cards", owner_id=ctx.supervisor)]


@SUPERVISOR.api("GET", "/passwords", auth=False, returns=[{"account_name": str, "password": str}])
def show_account_passwords(ctx: Context) -> Answer:
    """Show your supervisor's passwords, one for each app with an account."""
    found = []
    for name in (table for table in ctx.db.world.tables if table.endswith(".accounts")):
        row = ctx.db.get(name, ctx.supervisor)
        if row is not None:
            app = branded(name.removesuffix(".accounts"), ctx.apps.brand)
            found.append({"account_name": app, "password": row["password"]})
    return found
