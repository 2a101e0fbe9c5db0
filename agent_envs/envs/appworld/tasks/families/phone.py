"""Tasks on the phone: contacts, messages, alarms."""

from __future__ import annotations

from datetime import datetime, timedelta

from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    complete,
    contacts_of,
    family,
    login,
)
from agent_envs.envs.appworld.tasks.goals import Goal

MONTHS = """January February March April May June July August September October November
December""".split()
RELATIONS = ("friend", "coworker", "sibling", "roommate")
LABELS = ("Yoga", "Call the bank", "Water the plants", "Leave for the station", "Piano practice")
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
PHONE = "access_token=token_phone"


@family("phone", difficulty=1, phrases=(
    "Turn off all alarms on my phone.",
    "I want to sleep in peace: switch off every alarm that is on.",
    "None of my phone's alarms should ring any more. Keep them, but turn them off.",
))  # fmt: skip
def alarms_off(draw: Draw) -> Plan:
    on = draw.mine("phone.alarms", enabled=True)
    if not on or len(on) == len(draw.mine("phone.alarms")):
        raise NoTask
    return Plan(
        {},
        Goal(updated=[("phone.alarms", row["id"], {**row, "enabled": False}) for row in on]),
        (
            login("phone"),
            all_pages("alarms", f"apis.phone.show_alarms({PHONE}, enabled=True")
            + "\nfor alarm in alarms:\n"
            f"    apis.phone.update_alarm({PHONE}, alarm_id=alarm['alarm_id'], enabled=False)",
            complete(),
        ),
    )


@family("phone", difficulty=1, phrases=(
    "Set an alarm named {label!r} at {time}, every {days}.",
    "I need an alarm for {time} on every {days}; call it {label!r}.",
    "Please make a phone alarm {label!r} that rings at {time} each {days}.",
))  # fmt: skip
def alarm_new(draw: Draw) -> Plan:
    label, time = (
        draw.pick(LABELS),
        f"{draw.rng.randrange(6, 22):02d}:{draw.rng.choice((0, 10, 40)):02d}",
    )
    days = sorted(draw.rng.sample(DAYS, 2), key=DAYS.index)
    values = {"owner_id": draw.me, "label": label, "time": time, "enabled": True}
    return Plan(
        {"label": label, "time": time, "days": " and ".join(day.capitalize() for day in days)},
        Goal(
            inserted=[
                (
                    "phone.alarms",
                    {**values, "repeat_days": lambda found: sorted(found) == sorted(days)},
                )
            ]
        ),
        (
            login("phone"),
            f"apis.phone.create_alarm({PHONE}, label={label!r}, time={time!r}, repeat_days={days!r})",
            complete(),
        ),
    )


@family("phone", difficulty=1, phrases=(
    "Move my {label} alarm {minutes} minutes {direction}.",
    "My {label} alarm should ring {minutes} minutes {direction} than it does now.",
    "Let the alarm {label} on my phone ring {minutes} minutes {direction}.",
))  # fmt: skip
def alarm_shift(draw: Draw) -> Plan:
    row = draw.pick(draw.mine("phone.alarms"))
    if len(draw.mine("phone.alarms", label=row["label"])) > 1:
        raise NoTask
    minutes, sign = draw.pick((15, 20, 35, 50)), draw.pick((1, -1))
    new = (
        datetime.fromisoformat(f"2024-01-02T{row['time']}") + timedelta(minutes=sign * minutes)
    ).strftime("%H:%M")
    return Plan(
        {
            "label": row["label"],
            "minutes": minutes,
            "direction": "later" if sign > 0 else "earlier",
        },
        Goal(updated=[("phone.alarms", row["id"], {**row, "time": new})]),
        (
            login("phone"),
            all_pages("alarms", f"apis.phone.show_alarms({PHONE}")
            + f"\nalarm = [a for a in alarms if a['label'] == {row['label']!r}][0]\nprint(alarm)",
            "from datetime import datetime, timedelta\n"
            f"new = datetime.strptime(alarm['time'], '%H:%M') + timedelta(minutes={sign * minutes})\n"
            f"apis.phone.update_alarm({PHONE}, alarm_id=alarm['alarm_id'], time=new.strftime('%H:%M'))",
            complete(),
        ),
    )


@family("phone", difficulty=1, phrases=(
    "How many of my {relation}s have their birthday in {month}?",
    "Count the {relation}s in my contacts who were born in {month}.",
    "In {month}, how many {relation}s of mine celebrate a birthday?",
))  # fmt: skip
def birthdays(draw: Draw) -> Plan:
    relation, month = draw.pick(RELATIONS), draw.rng.randrange(1, 13)
    rows = [c for c in draw.mine("phone.contacts") if relation in c["relationships"]]
    count = sum(int(row["birthday"][5:7]) == month for row in rows)
    if not 0 < count < len(rows) or len(rows) < 3:
        raise NoTask
    return Plan(
        {"relation": relation, "month": MONTHS[month - 1]},
        Goal(answer=count),
        (
            login("phone"),
            contacts_of(relation)
            + f"\nfound = [c for c in contacts if int(c['birthday'][5:7]) == {month}]\nprint(len(found))",
            complete("len(found)"),
        ),
    )


@family("phone", difficulty=2, phrases=(
    "Send a text message to all my {relation}s: {text!r}",
    "Text each of my {relation}s the words {text!r}",
    "All of my {relation}s should get this text message from me: {text!r}",
))  # fmt: skip
def text_all(draw: Draw) -> Plan:
    relation = draw.pick(RELATIONS)
    people = draw.related(relation)
    contacts = [c for c in draw.mine("phone.contacts") if relation in c["relationships"]]
    if not 1 < len(people) == len(contacts):
        raise NoTask
    text = draw.pick((
        "I will be away next week.", "Dinner at my place on Sunday?", "My new job starts on Monday!",
        "Who has a ladder to lend?",
    ))  # fmt: skip
    sent = [
        ("phone.text_messages", {"sender_id": draw.me, "receiver_id": person["id"], "text": text})
        for person in people
    ]
    return Plan(
        {"relation": relation, "text": text},
        Goal(inserted=sent),
        (
            login("phone"),
            contacts_of(relation) + "\nprint(len(contacts))",
            "for contact in contacts:\n"
            f"    apis.phone.send_text_message({PHONE}, phone_number=contact['phone_number'], text={text!r})",
            complete(),
        ),
    )
