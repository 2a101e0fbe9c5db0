"""To-do lists: projects, tasks with due dates and priorities, sub-tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Body,
    Date,
    Id,
    Maybe,
    Range,
    Text,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

TODOIST = App("todoist", "Keep to-do lists: projects, tasks, due dates, priorities and sub-tasks.")
TODOIST.accounts(View("", first_name=str, last_name=str, email=EMAIL, registered_on=DATE))
PROJECT = View("project", name=str, archived=bool, open_tasks=int, created_at=DATETIME)
TASK = View(
    "task", project_id=int, title=str, description=str, due_date=Maybe(DATE), priority=int,
    labels=[str], done=bool, created_at=DATETIME, done_at=Maybe(DATETIME),
)  # fmt: skip
SUBTASK = View("subtask", task_id=int, title=str, done=bool)
Priority = Annotated[int, Range(1, 4)]
PLANS = {
    "Home": "Fix the tap|Wash the curtains|Order firewood|Repot the fern|Sort the cellar".split(
        "|"
    ),
    "Work": "Send the report|Book the room|Review the budget|Call the printer|Update slides".split(
        "|"
    ),
    "Trip": "Renew passport|Reserve seats|Pack the tent|Check the tyres|Find a dog sitter".split(
        "|"
    ),
    "Learning": "Finish chapter 3|Practise scales|Watch lecture 5|Write flashcards".split("|"),
}
PARTS = "gather what is needed|ask for prices|make a first draft|check again".split("|")


@TODOIST.seeding
def seed(b: Builder) -> None:
    """todoist.projects (owner_id, name, archived), .tasks (owner_id, project_id, title, due_date,
    priority 1-4, labels, done), .subtasks (owner_id, task_id, title, done). One task in the project
    Home is to pay each of the last shared bills."""
    for account in b.accounts("todoist"):
        me = account["id"]
        rng = b.rng("todoist", f"tasks {me}")
        bills = [f"Pay {b.people[o.payer - 1]['first_name']} for the {o.title}"
                 for o in b.outings if me in o.members and o.payer != me][-2:]  # fmt: skip
        for name in rng.sample(list(PLANS), 3):
            project = b.add(
                "todoist.projects", owner_id=me, name=name, archived=False,
                created_at=b.ago(rng, 200, 360),
            )  # fmt: skip
            for title in rng.sample(PLANS[name], 4) + (bills if name == "Home" else []):
                done = rng.random() < 0.35
                made = b.ago(rng, 2, 190)
                task = b.add(
                    "todoist.tasks", owner_id=me, project_id=project["id"], title=title,
                    description="", priority=rng.randint(1, 4), done=done,
                    due_date=b.day(rng, -15, 25) if rng.random() < 0.5 else None,
                    labels=rng.sample(("errand", "phone", "computer", "quick"), rng.randint(0, 2)),
                    created_at=made, done_at=b.after(made, 2000) if done else None,
                )  # fmt: skip
                for part in rng.sample(PARTS, rng.choice((0, 0, 2, 3))):
                    b.add(
                        "todoist.subtasks", owner_id=me, task_id=task["id"], title=part,
                        done=done or rng.random() < 0.3,
                    )  # fmt: skip


def _project(ctx: Context, row: Row) -> Answer:
    return PROJECT(row, open_tasks=len(ctx.where("tasks", project_id=row["id"], done=False)))


@TODOIST.api("GET", "/projects", returns=[PROJECT], search=("name",), sort=("name", "created_at"))
def show_projects(ctx: Context, *, archived: bool | None = None) -> Iterable[Answer]:
    """List your projects.

    archived: only those that are put away, or not
    """
    return (_project(ctx, r) for r in ctx.mine("projects") if archived in (None, r["archived"]))


@TODOIST.api("POST", "/projects", returns=created("project"))
def create_project(ctx: Context, *, name: Text) -> Answer:
    """Make a project.

    name: its name
    """
    check(not ctx.mine("projects", name=name), f"You already have a project named {name}.")
    row = ctx.insert("projects", owner_id=ctx.person, name=name, archived=False, created_at=ctx.now)
    return {"message": "Project created.", "project_id": row["id"]}


@TODOIST.api("PATCH", "/projects/{project_id}")
def update_project(
    ctx: Context, *, project_id: Id, name: Text | None = None, archived: bool | None = None
) -> Answer:
    """Give a project another name, or put it away.

    project_id: the project's id
    name: the new name
    archived: whether it is put away
    """
    ctx.own("projects", project_id)
    ctx.update("projects", project_id, name=name, archived=archived)
    return {"message": "Project updated."}


@TODOIST.api("DELETE", "/projects/{project_id}")
def delete_project(ctx: Context, *, project_id: Id) -> Answer:
    """Delete a project with all its tasks.

    project_id: the project's id
    """
    ctx.own("projects", project_id)
    for row in ctx.where("tasks", project_id=project_id):
        _delete_task(ctx, row["id"])
    ctx.delete("projects", project_id)
    return {"message": "Project deleted."}


def _delete_task(ctx: Context, number: int) -> None:
    for row in ctx.where("subtasks", task_id=number):
        ctx.delete("subtasks", row["id"])
    ctx.delete("tasks", number)


@TODOIST.api(
    "GET", "/tasks", returns=[TASK], search=("title", "description", "labels"),
    sort=("title", "due_date", "priority", "created_at"),
)  # fmt: skip
def show_tasks(
    ctx: Context,
    *,
    project_id: Id | None = None,
    done: bool | None = None,
    label: Text | None = None,
    due_by: Date | None = None,
) -> Iterable[Answer]:
    """List your tasks.

    project_id: only those of this project
    done: only those that are done, or not
    label: only those with this label
    due_by: only those due on this day or earlier
    """
    if project_id is not None:
        ctx.own("projects", project_id)
    for row in ctx.mine("tasks"):
        if (
            project_id in (None, row["project_id"])
            and done in (None, row["done"])
            and (label is None or label in row["labels"])
            and (due_by is None or (row["due_date"] or "9999") <= due_by)
        ):
            yield TASK(row)


@TODOIST.api("GET", "/tasks/{task_id}", returns=TASK.plus(subtasks=[SUBTASK]))
def show_task(ctx: Context, *, task_id: Id) -> Answer:
    """Show a task with its sub-tasks.

    task_id: the task's id
    """
    row = ctx.own("tasks", task_id)
    return {**TASK(row), "subtasks": [SUBTASK(s) for s in ctx.where("subtasks", task_id=task_id)]}


@TODOIST.api("POST", "/tasks", returns=created("task"))
def create_task(
    ctx: Context,
    *,
    project_id: Id,
    title: Text,
    description: Body = "",
    due_date: Date | None = None,
    priority: Priority = 1,
    labels: list[Text] | None = None,
) -> Answer:
    """Add a task to a project.

    project_id: the project's id
    title: what is to be done
    description: more about it
    due_date: by when
    priority: from 1 (low) to 4 (urgent)
    labels: its labels
    """
    ctx.own("projects", project_id)
    row = ctx.insert(
        "tasks", owner_id=ctx.person, project_id=project_id, title=title,
        description=description, priority=priority, done=False, due_date=due_date,
        labels=labels or [], created_at=ctx.now, done_at=None,
    )  # fmt: skip
    return {"message": "Task created.", "task_id": row["id"]}


@TODOIST.api("PATCH", "/tasks/{task_id}")
def update_task(
    ctx: Context,
    *,
    task_id: Id,
    title: Text | None = None,
    description: Body | None = None,
    due_date: Date | None = None,
    priority: Priority | None = None,
    labels: list[Text] | None = None,
    project_id: Id | None = None,
) -> Answer:
    """Change a task; what you leave out stays.

    task_id: the task's id
    title: what is to be done
    description: more about it
    due_date: by when
    priority: from 1 (low) to 4 (urgent)
    labels: its labels, in place of the old ones
    project_id: the project to move it to
    """
    ctx.own("tasks", task_id)
    if project_id is not None:
        ctx.own("projects", project_id)
    ctx.update(
        "tasks", task_id, title=title, description=description, due_date=due_date,
        priority=priority, labels=labels, project_id=project_id,
    )  # fmt: skip
    return {"message": "Task updated."}


@TODOIST.api("POST", "/tasks/{task_id}/complete")
def complete_task(ctx: Context, *, task_id: Id) -> Answer:
    """Tick a task off.

    task_id: the task's id
    """
    check(not ctx.own("tasks", task_id)["done"], "The task is already done.")
    ctx.update("tasks", task_id, done=True, done_at=ctx.now)
    return {"message": "Task completed."}


@TODOIST.api("POST", "/tasks/{task_id}/reopen")
def reopen_task(ctx: Context, *, task_id: Id) -> Answer:
    """Open a done task again.

    task_id: the task's id
    """
    check(ctx.own("tasks", task_id)["done"], "The task is not done.")
    ctx.db.update("todoist.tasks", task_id, done=False, done_at=None)
    return {"message": "Task reopened."}


@TODOIST.api("DELETE", "/tasks/{task_id}")
def delete_task(ctx: Context, *, task_id: Id) -> Answer:
    """Delete a task with its sub-tasks.

    task_id: the task's id
    """
    ctx.own("tasks", task_id)
    _delete_task(ctx, task_id)
    return {"message": "Task deleted."}


@TODOIST.api("POST", "/subtasks", returns=created("subtask"))
def add_subtask(ctx: Context, *, task_id: Id, title: Text) -> Answer:
    """Add a sub-task to a task.

    task_id: the task's id
    title: what is to be done
    """
    ctx.own("tasks", task_id)
    row = ctx.insert("subtasks", owner_id=ctx.person, task_id=task_id, title=title, done=False)
    return {"message": "Sub-task added.", "subtask_id": row["id"]}


@TODOIST.api("PATCH", "/subtasks/{subtask_id}")
def update_subtask(
    ctx: Context, *, subtask_id: Id, title: Text | None = None, done: bool | None = None
) -> Answer:
    """Change a sub-task or tick it off.

    subtask_id: the sub-task's id
    title: what is to be done
    done: whether it is done
    """
    ctx.own("subtasks", subtask_id)
    ctx.update("subtasks", subtask_id, title=title, done=done)
    return {"message": "Sub-task updated."}
