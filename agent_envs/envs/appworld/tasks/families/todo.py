"""Tasks with to-do lists."""

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
    read_note,
)
from agent_envs.envs.appworld.tasks.goals import Goal

TODO = "access_token=token_todoist"


def _project(draw: Draw) -> Mapping[str, Any]:
    return draw.pick(draw.mine("todoist.projects"))  # type: ignore[no-any-return]


def _tasks(name: str, more: str = "") -> str:
    """Code that lists the tasks of a project."""
    return (
        f"projects = apis.todoist.show_projects({TODO}, page_limit=20)\n"
        f"project = [p for p in projects if p['name'] == {name!r}][0]\n"
        + all_pages(
            "tasks", f"apis.todoist.show_tasks({TODO}, project_id=project['project_id']{more}"
        )
    )


@family("todoist", difficulty=1, phrases=(
    "How many open tasks with the label {label!r} are there on my Todoist?",
    "Count what is still to be done on Todoist under the label {label!r}.",
    "On Todoist, how many tasks labelled {label!r} are not done?",
))  # fmt: skip
def open_label(draw: Draw) -> Plan:
    label = draw.pick(("errand", "phone", "computer", "quick"))
    rows = [row for row in draw.mine("todoist.tasks") if label in row["labels"]]
    count = sum(not row["done"] for row in rows)
    if not 0 < count < len(rows):
        raise NoTask
    return Plan(
        {"label": label},
        Goal(answer=count),
        (
            login("todoist"),
            all_pages("tasks", f"apis.todoist.show_tasks({TODO}, label={label!r}, done=False")
            + "\nprint(len(tasks))",
            complete("len(tasks)"),
        ),
    )


@family("todoist", difficulty=2, phrases=(
    "Mark all open tasks of my Todoist project {name!r} as done; leave sub-tasks as they are.",
    "Everything in {name!r} on Todoist is finished. Tick off the tasks that are still open there, not their sub-tasks.",
    "Complete each open task in the project {name!r} on Todoist, without touching sub-tasks.",
))  # fmt: skip
def finish_project(draw: Draw) -> Plan:
    project = _project(draw)
    rows = draw.mine("todoist.tasks", project_id=project["id"])
    waiting = [row for row in rows if not row["done"]]
    if not 0 < len(waiting) < len(rows):
        raise NoTask
    done = [
        ("todoist.tasks", row["id"], {
            "done": True, "title": row["title"], "project_id": row["project_id"], "due_date": row["due_date"],
        })
        for row in waiting
    ]  # fmt: skip
    return Plan(
        {"name": project["name"]},
        Goal(updated=done),
        (
            login("todoist"),
            _tasks(project["name"], ", done=False")
            + f"\nfor task in tasks:\n    apis.todoist.complete_task({TODO}, task_id=task['task_id'])",
            complete(),
        ),
    )


@family("todoist", difficulty=2, phrases=(
    "Give every open Todoist task that is due by {day} the priority 4.",
    "Whatever is open on Todoist and due on {day} or earlier is urgent: set its priority to 4.",
    "On Todoist, raise the priority of all tasks that are not done and due by {day} to 4.",
))  # fmt: skip
def urgent(draw: Draw) -> Plan:
    rows = [row for row in draw.mine("todoist.tasks") if row["due_date"] and not row["done"]]
    day = draw.pick(sorted({row["due_date"] for row in rows}))
    due = [row for row in rows if row["due_date"] <= day]
    changed = [row for row in due if row["priority"] != 4]
    if not changed or len(due) == len(rows):
        raise NoTask
    raised = [
        (
            "todoist.tasks",
            row["id"],
            {"priority": 4, "done": False, "title": row["title"], "due_date": row["due_date"]},
        )
        for row in changed
    ]
    return Plan(
        {"day": day},
        Goal(updated=raised),
        (
            login("todoist"),
            all_pages("tasks", f"apis.todoist.show_tasks({TODO}, done=False, due_by='{day}'")
            + f"\nfor task in tasks:\n    apis.todoist.update_task({TODO}, task_id=task['task_id'], priority=4)",
            complete(),
        ),
    )


@family("todoist", difficulty=1, phrases=(
    "Add the task {title!r} to my Todoist project {name!r}, due {day}, priority {priority}.",
    "In {name!r} on Todoist I need a new task {title!r} with priority {priority}, due on {day}.",
    "Put {title!r} on my Todoist list {name!r}; it is due {day} and has priority {priority}.",
))  # fmt: skip
def new_task(draw: Draw) -> Plan:
    project, title = (
        _project(draw),
        draw.pick(("Buy stamps", "Return the books", "Ask for the key")),
    )
    day, priority = (
        f"{draw.db.now.year + 1}-0{draw.rng.randrange(1, 10)}-1{draw.rng.randrange(10)}",
        draw.rng.randrange(2, 5),
    )
    values = {
        "owner_id": draw.me,
        "project_id": project["id"],
        "title": title,
        "due_date": day,
        "priority": priority,
    }
    return Plan(
        {"title": title, "name": project["name"], "day": day, "priority": priority},
        Goal(inserted=[("todoist.tasks", {**values, "done": False})]),
        (
            login("todoist"),
            f"projects = apis.todoist.show_projects({TODO}, page_limit=20)\n"
            f"number = [p['project_id'] for p in projects if p['name'] == {project['name']!r}][0]",
            f"apis.todoist.create_task({TODO}, project_id=number, title={title!r}, due_date='{day}', priority={priority})",
            complete(),
        ),
    )


@family("todoist", "simple_note", difficulty=3, phrases=(
    "Make a Todoist project 'Shopping' with one task for each item of my shopping list note.",
    "Turn the shopping list among my notes into a new Todoist project 'Shopping': every item is a task.",
    "Each line of my shopping list note should be a task (without the dash) in a new Todoist project 'Shopping'.",
))  # fmt: skip
def list_to_tasks(draw: Draw) -> Plan:
    notes = draw.mine("simple_note.notes", title="Shopping list")
    if len(notes) != 1 or draw.mine("todoist.projects", name="Shopping"):
        raise NoTask
    items = [line.removeprefix("- ") for line in notes[0]["content"].splitlines()]
    # whatever id the new project gets: ids only rise
    last = max(row["id"] for row in draw.db.rows("todoist.projects"))
    tasks = [
        (
            "todoist.tasks",
            {"owner_id": draw.me, "project_id": lambda found: found > last, "title": item},
        )
        for item in items
    ]
    return Plan(
        {},
        Goal(inserted=[("todoist.projects", {"owner_id": draw.me, "name": "Shopping"}), *tasks]),
        (
            login("simple_note"),
            read_note("Shopping list"),
            login("todoist"),
            f"project = apis.todoist.create_project({TODO}, name='Shopping')['project_id']\n"
            "for line in note['content'].splitlines():\n"
            f"    apis.todoist.create_task({TODO}, project_id=project, title=line.removeprefix('- '))",
            complete(),
        ),
    )


@family("todoist", "phone", "venmo", difficulty=3, phrases=(
    "My Todoist has an open task {title!r}. Do it by Venmo: pay {who} ${amount} from the balance with the note {what!r}, "
    "then tick the task off.",
    "Pay {who} ${amount} from my Venmo balance (note {what!r}) and complete the Todoist task {title!r}.",
    "Send ${amount} to {who} through Venmo, out of the balance, with the note {what!r}; after that mark {title!r} on "
    "Todoist as done.",
))  # fmt: skip
def pay_and_tick(draw: Draw) -> Plan:
    rows = [r for r in draw.mine("todoist.tasks", done=False) if r["title"].startswith("Pay ")]
    row = draw.pick(rows)
    first, _, what = row["title"].removeprefix("Pay ").partition(" for the ")
    people = [
        p for kind in ("roommate", "sibling", "friend", "coworker") for p in draw.related(kind)
    ]
    named = [p for p in people if p["first_name"] == first]
    alike = [r for r in draw.mine("todoist.tasks") if r["title"] == row["title"]]
    if len(named) != 1 or len(alike) != 1 or draw.db.get("venmo.accounts", named[0]["id"]) is None:
        raise NoTask
    amount = draw.rng.randrange(10, 60) / 2
    inserted, updated = paid_from_balance(draw, [(named[0]["id"], amount, what)])
    ticked = ("todoist.tasks", row["id"], {"done": True, "title": row["title"]})
    return Plan(
        {
            "title": row["title"],
            "who": full_name(named[0]),
            "amount": amount_text(amount),
            "what": what,
        },
        Goal(inserted=inserted, updated=[*updated, ticked]),
        (
            login("phone"),
            one_contact(full_name(named[0])),
            login("venmo"),
            "apis.venmo.create_transaction(access_token=token_venmo, receiver_email=contact['email'], "
            f"amount={amount}, note={what!r})",
            login("todoist"),
            all_pages("tasks", f"apis.todoist.show_tasks({TODO}, done=False")
            + f"\nnumber = [t['task_id'] for t in tasks if t['title'] == {row['title']!r}][0]\n"
            f"apis.todoist.complete_task({TODO}, task_id=number)",
            complete(),
        ),
    )
