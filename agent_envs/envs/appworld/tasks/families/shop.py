"""Tasks in the shop; kept for the challenge split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_envs.envs.appworld.tasks.families.mail import sent
from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    complete,
    family,
    full_name,
    login,
    one_contact,
)
from agent_envs.envs.appworld.tasks.goals import Goal, Values

SHOP = "access_token=token_amazon"


def _product(draw: Draw, number: int) -> Mapping[str, Any]:
    row = draw.db.get("amazon.products", number)
    assert row is not None  # carts and wishes hold products of the world
    return row


@family("amazon", difficulty=1, challenge=True, phrases=(
    "How much have I spent in all on Amazon orders that were delivered, whatever I sent back?",
    "Add up the totals of my delivered Amazon orders.",
    "What do the totals of all my Amazon orders with the status delivered come to?",
))  # fmt: skip
def spent(draw: Draw) -> Plan:
    totals = [row["total"] for row in draw.mine("amazon.orders", status="delivered")]
    if len(totals) < 3:
        raise NoTask
    return Plan(
        {},
        Goal(answer=round(sum(totals), 2)),
        (
            login("amazon"),
            all_pages("orders", f"apis.amazon.show_orders({SHOP}, status='delivered'")
            + "\ntotal = round(sum(order['total'] for order in orders), 2)\nprint(total)",
            complete("total"),
        ),
    )


@family("amazon", difficulty=2, challenge=True, phrases=(
    "Move everything on my Amazon wish list that costs less than ${limit} into the cart, one of each.",
    "What is cheaper than ${limit} on my Amazon wish list should go from the list into my cart (one of each).",
    "Take each product under ${limit} off my wish list on Amazon and put one of it into the cart.",
))  # fmt: skip
def wishes_to_cart(draw: Draw) -> Plan:
    limit = draw.pick((25, 40, 60))
    in_cart = {row["product_id"] for row in draw.mine("amazon.cart_items")}
    wishes = draw.mine("amazon.wishes")
    cheap = [row for row in wishes if _product(draw, row["product_id"])["price"] < limit]
    if not 0 < len(cheap) < len(wishes) or any(row["product_id"] in in_cart for row in cheap):
        raise NoTask
    added: list[tuple[str, Values]] = [
        ("amazon.cart_items", {"owner_id": draw.me, "product_id": row["product_id"], "quantity": 1})
        for row in cheap
    ]
    return Plan(
        {"limit": limit},
        Goal(inserted=added, deleted=[("amazon.wishes", row["id"]) for row in cheap]),
        (
            login("amazon"),
            all_pages("wishes", f"apis.amazon.show_wish_list({SHOP}"),
            "for wish in wishes:\n"
            f"    if wish['price'] < {limit}:\n"
            f"        apis.amazon.add_to_cart({SHOP}, product_id=wish['product_id'], quantity=1)\n"
            f"        apis.amazon.remove_from_wish_list({SHOP}, product_id=wish['product_id'])",
            complete(),
        ),
    )


@family("amazon", difficulty=1, challenge=True, phrases=(
    "Remove every product that costs more than ${limit} apiece from my Amazon cart.",
    "My Amazon cart should hold nothing with a price above ${limit} apiece. Take such things out.",
    "Throw out of the cart on Amazon whatever costs over ${limit} a piece.",
))  # fmt: skip
def thin_cart(draw: Draw) -> Plan:
    items = draw.mine("amazon.cart_items")
    limit = draw.pick((20, 35, 50, 70))
    dear = [row for row in items if _product(draw, row["product_id"])["price"] > limit]
    if not 0 < len(dear) < len(items):
        raise NoTask
    return Plan(
        {"limit": limit},
        Goal(deleted=[("amazon.cart_items", row["id"]) for row in dear]),
        (
            login("amazon"),
            f"for item in apis.amazon.show_cart({SHOP})['items']:\n"
            f"    if item['price'] > {limit}:\n"
            f"        apis.amazon.remove_from_cart({SHOP}, product_id=item['product_id'])",
            complete(),
        ),
    )


@family("amazon", difficulty=2, challenge=True, phrases=(
    "Order what is in my Amazon cart, to my {label} address, with the {card} card.",
    "Please place the order for my cart on Amazon. It goes to the {label} address; pay with {card}.",
    "Buy everything in the cart on Amazon: deliver to {label}, charge my {card} card.",
))  # fmt: skip
def order_cart(draw: Draw) -> Plan:
    items = draw.mine("amazon.cart_items")
    address = draw.pick(draw.mine("amazon.addresses"))
    cards = draw.mine("amazon.payment_cards")
    card = draw.pick([row for row in cards if row["expires_on"] >= draw.db.world.now[:10]])
    products = [_product(draw, row["product_id"]) for row in items]
    short = any(p["stock"] < row["quantity"] for row, p in zip(items, products, strict=True))
    if not items or short or sum(c["name"] == card["name"] for c in cards) > 1:
        raise NoTask
    total = round(
        sum(p["price"] * row["quantity"] for row, p in zip(items, products, strict=True)), 2
    )
    place = f"{address['street_address']}, {address['zip_code']} {address['city']}"
    order = {
        "owner_id": draw.me, "total": total, "status": "placed", "address": place,
        "payment_card_id": card["id"],
    }  # fmt: skip
    left = [
        ("amazon.products", p["id"], {"stock": p["stock"] - row["quantity"], "price": p["price"]})
        for row, p in zip(items, products, strict=True)
    ]
    return Plan(
        {"label": address["label"], "card": card["name"]},
        Goal(
            inserted=[("amazon.orders", order)],
            updated=left,
            deleted=[("amazon.cart_items", row["id"]) for row in items],
        ),
        (
            login("amazon"),
            f"addresses = apis.amazon.show_addresses({SHOP})\n"
            f"address = [a for a in addresses if a['label'] == {address['label']!r}][0]\n"
            f"cards = apis.amazon.show_payment_cards({SHOP})\n"
            f"card = [c for c in cards if c['name'] == {card['name']!r}][0]\nprint(address, card)",
            f"apis.amazon.place_order({SHOP}, address_id=address['address_id'], "
            "payment_card_id=card['payment_card_id'])",
            complete(),
        ),
    )


@family("amazon", "gmail", "phone", difficulty=3, challenge=True, phrases=(
    "Forward the Gmail receipt of my most expensive Amazon order to {name}, without a comment.",
    "Which of my Amazon orders cost most? Forward its receipt (a mail in my inbox) to {name}, adding nothing.",
    "{name} needs the receipt of my largest Amazon order. It is in my Gmail inbox: forward it as it is.",
))  # fmt: skip
def forward_receipt(draw: Draw) -> Plan:
    orders = sorted(draw.mine("amazon.orders"), key=lambda row: -row["total"])
    if len(orders) < 3 or orders[0]["total"] == orders[1]["total"]:
        raise NoTask
    mails = draw.mine("gmail.emails", box="inbox", subject=f"Your order {orders[0]['id']}")
    people = [p for kind in ("friend", "sibling", "roommate", "parent") for p in draw.related(kind)]
    person = draw.pick([p for p in people if draw.db.get("gmail.accounts", p["id"]) is not None])
    if len(mails) != 1:
        raise NoTask
    row = mails[0]
    copies = sent(
        draw,
        person,
        subject=f"Fwd: {row['subject']}",
        body=row["body"],
        attachments=row["attachments"],
    )
    return Plan(
        {"name": full_name(person)},
        Goal(inserted=copies, allowed=("gmail.threads",)),
        (
            login("amazon"),
            all_pages("orders", f"apis.amazon.show_orders({SHOP}")
            + "\ntop = max(orders, key=lambda order: order['total'])\nprint(top)",
            login("gmail"),
            "subject = f\"Your order {top['order_id']}\"\n"
            "found = apis.gmail.search_emails(access_token=token_gmail, query=subject, page_limit=20)\n"
            "mail = [m for m in found if m['subject'] == subject][0]",
            login("phone"),
            one_contact(full_name(person)),
            "apis.gmail.forward_email(access_token=token_gmail, email_id=mail['email_id'], "
            "recipients=[contact['email']])",
            complete(),
        ),
    )


@family("amazon", "gmail", "file_system", difficulty=3, challenge=True, phrases=(
    "Save the receipt that Gmail has of my latest Amazon order into ~/documents, under the attachment's name.",
    "The attached receipt of my newest Amazon order should lie in ~/documents; keep the file's name.",
    "Find the mail with the receipt of my last Amazon order and save its attachment in ~/documents as it is named.",
))  # fmt: skip
def save_receipt(draw: Draw) -> Plan:
    orders = sorted(draw.mine("amazon.orders"), key=lambda row: row["ordered_at"])
    if len(orders) < 2 or orders[-1]["ordered_at"] == orders[-2]["ordered_at"]:
        raise NoTask
    mails = draw.mine("gmail.emails", box="inbox", subject=f"Your order {orders[-1]['id']}")
    account = draw.db.get("file_system.accounts", draw.me)
    if len(mails) != 1 or account is None:
        raise NoTask
    (file,) = mails[0]["attachments"]
    path = f"{account['home']}/documents/{file['name']}"
    return Plan(
        {},
        Goal(inserted=[("file_system.files", {
            "owner_id": draw.me, "path": path, "content": file["content"],
        })]),
        (
            login("amazon"),
            all_pages("orders", f"apis.amazon.show_orders({SHOP}")
            + "\nlast = max(orders, key=lambda order: order['ordered_at'])",
            login("gmail"),
            "subject = f\"Your order {last['order_id']}\"\n"
            "found = apis.gmail.search_emails(access_token=token_gmail, query=subject, page_limit=20)\n"
            "mail = [m for m in found if m['subject'] == subject][0]\nprint(mail['attachment_names'])",
            login("file_system"),
            "name = mail['attachment_names'][0]\n"
            "apis.gmail.save_attachment(access_token=token_gmail, email_id=mail['email_id'], attachment_name=name, "
            "path='~/documents/' + name, file_system_access_token=token_file_system)",
            complete(),
        ),
    )  # fmt: skip
