"""A shop: products, reviews, a cart, a wish list, orders and returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Body,
    Id,
    Maybe,
    Range,
    Stars,
    Text,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

AMAZON = App("amazon", "Shop: search products, fill a cart, place orders, review and return.")
AMAZON.accounts(
    View("", first_name=str, last_name=str, email=EMAIL, prime=bool, registered_on=DATE)
)
PRODUCT = View(
    "product", name=str, category=str, maker=str, colour=str, price=float, rating=float,
    review_count=int, stock=int,
)  # fmt: skip
REVIEW = View("review", product_id=int, author_name=str, stars=int, text=str, created_at=DATETIME)
LINE = {"product_id": int, "name": str, "price": float, "quantity": int}
CART_LINE = View("cart_item", **LINE)
WISH = View("wish", product_id=int, name=str, price=float, stock=int, created_at=DATETIME)
ADDRESS = View("address", label=str, street_address=str, city=str, zip_code=str)
CARD = View("payment_card", name=str, digits=str, expires_on=DATE)
ORDER = View(
    "order", items=[LINE], total=float, status=str, address=str, payment_card_id=int,
    ordered_at=DATETIME, delivered_at=Maybe(DATETIME),
)  # fmt: skip
RETURN = View(
    "return", order_id=int, product_id=int, name=str, quantity=int, amount=float, reason=str,
    created_at=DATETIME,
)  # fmt: skip
Quantity = Annotated[int, Range(1, 50)]
THINGS = {
    "kitchen": "kettle|frying pan|knife set|mixing bowl|spice rack|toaster",
    "garden": "watering can|pruning shears|seed tray|garden hose|planter",
    "office": "desk lamp|notebook|stapler|monitor stand|pen set|file box",
    "sports": "yoga mat|jump rope|water bottle|tennis balls|headlamp|tent",
    "toys": "puzzle|kite|building blocks|card game|wooden train",
    "home": "blanket|curtain|picture frame|candle|laundry basket|door mat",
}
MAKERS = "Norrvik|Tamberly|Oakline|Zestro|Halden & Co|Mirabo".split("|")
COLOURS = "red|blue|green|grey|black|white".split("|")
OPINIONS = ("Broke soon.", "Not what I hoped.", "Does its job.", "Good value.", "Love it!")


@AMAZON.seeding
def seed(b: Builder) -> None:
    """amazon.products, .reviews (owner_id, product_id, stars, text), .addresses and
    .payment_cards (owner_id), .cart_items (owner_id, product_id, quantity), .wishes (owner_id,
    product_id), .orders (owner_id, items: [{product_id, name, price, quantity}], total, status,
    ordered_at, delivered_at), .returns (owner_id, order_id, product_id, quantity, amount)."""
    rng = b.rng("amazon", "products")
    for category, things in THINGS.items():
        for thing in things.split("|"):
            for maker in rng.sample(MAKERS, rng.randint(2, 3)):
                colour = rng.choice(COLOURS)
                b.add(
                    "amazon.products", name=f"{maker} {thing} ({colour})", category=category,
                    maker=maker, colour=colour, price=rng.randint(499, 9_999) / 100, rating=0.0,
                    review_count=0, stock=rng.choice((0, 3, 12, 40, 90)),
                )  # fmt: skip
    for card in b.table("supervisor.payment_cards").values():
        b.add(
            "amazon.payment_cards", **{key: card[key] for key in card if key not in ("id", "cents")}
        )
    for table in ("reviews", "orders", "returns", "cart_items", "wishes"):
        b.table(f"amazon.{table}")
    for account in b.accounts("amazon", share=0.8):
        _seed_customer(b, account)
    for number, product in b.table("amazon.products").items():
        stars = [
            r["stars"] for r in b.table("amazon.reviews").values() if r["product_id"] == number
        ]
        mean = round(sum(stars) / len(stars), 2) if stars else 0.0
        shown = {**product, "rating": mean, "review_count": len(stars)}
        b.table("amazon.products")[number] = shown


def _seed_customer(b: Builder, account: Row) -> None:
    me = account["id"]
    rng = b.rng("amazon", f"customer {me}")
    b.table("amazon.accounts")[me] = {**account, "prime": rng.random() < 0.5}
    person = b.people[me - 1]
    work = {"street_address": f"{me} Commerce Square", "city": "Larkfield", "zip_code": "40404"}
    for label, address in (("home", person["address"]), ("work", work)):
        b.add("amazon.addresses", owner_id=me, label=label, **address)
    products = list(b.table("amazon.products").values())
    cards = [c["id"] for c in b.table("amazon.payment_cards").values() if c["owner_id"] == me]
    bought: list[int] = []
    for days in sorted(rng.sample(range(1, 350), rng.randint(4, 8)), reverse=True):
        items = [
            _line(product, rng.randint(1, 3)) for product in rng.sample(products, rng.randint(1, 3))
        ]
        ordered = b.ago(rng, days, days)
        late = days < 4
        order = b.add(
            "amazon.orders", owner_id=me, items=items, total=_total(items),
            status="placed" if late else "delivered", address=_line_of(person["address"]),
            payment_card_id=rng.choice(cards), ordered_at=ordered,
            delivered_at=None if late else b.after(ordered, rng.randint(1500, 4000)),
        )  # fmt: skip
        if late:
            continue
        bought += [item["product_id"] for item in items]
        if rng.random() < 0.12:
            item = items[0]
            b.add(
                "amazon.returns", owner_id=me, order_id=order["id"], product_id=item["product_id"],
                quantity=item["quantity"], amount=round(item["price"] * item["quantity"], 2),
                reason="too small", created_at=b.after(order["delivered_at"], 900),
            )  # fmt: skip
    for number in sorted({*bought}):
        if rng.random() < 0.5:
            stars = rng.randint(1, 5)
            b.add(
                "amazon.reviews", owner_id=me, product_id=number, stars=stars,
                text=OPINIONS[stars - 1], created_at=b.ago(rng, 1, 60),
            )  # fmt: skip
    for product in rng.sample(products, rng.randint(2, 4)):
        b.add(
            "amazon.cart_items", owner_id=me, product_id=product["id"], quantity=rng.randint(1, 3)
        )
    for product in rng.sample(products, rng.randint(3, 6)):
        b.add("amazon.wishes", owner_id=me, product_id=product["id"], created_at=b.ago(rng, 1, 300))


def _line(product: Row, quantity: int) -> dict[str, Any]:
    shown = {"product_id": product["id"], "name": product["name"], "price": product["price"]}
    return {**shown, "quantity": quantity}


def _total(items: Iterable[Row]) -> float:
    return float(round(sum(item["price"] * item["quantity"] for item in items), 2))


def _line_of(address: Row) -> str:
    return f"{address['street_address']}, {address['zip_code']} {address['city']}"


@AMAZON.api(
    "GET", "/products", auth=False, returns=[PRODUCT],
    search=("name", "category", "maker", "colour"), sort=("name", "price", "rating", "review_count"),
)  # fmt: skip
def search_products(
    ctx: Context,
    *,
    category: Text | None = None,
    maker: Text | None = None,
    lowest_price: float | None = None,
    highest_price: float | None = None,
    in_stock: bool = False,
) -> Iterable[Answer]:
    """Search the products of the shop.

    category: only products of this category
    maker: only products of this maker
    lowest_price: only products that cost this or more
    highest_price: only products that cost this or less
    in_stock: only products that can be had now
    """
    for row in ctx.rows("products"):
        if (
            category in (None, row["category"])
            and maker in (None, row["maker"])
            and (lowest_price is None or lowest_price <= row["price"])
            and (highest_price is None or row["price"] <= highest_price)
            and (row["stock"] > 0 or not in_stock)
        ):
            yield PRODUCT(row)


@AMAZON.api("GET", "/products/{product_id}", auth=False, returns=PRODUCT)
def show_product(ctx: Context, *, product_id: Id) -> Answer:
    """Show a product.

    product_id: the product's id
    """
    return PRODUCT(ctx.find("products", product_id))


@AMAZON.api(
    "GET", "/products/{product_id}/reviews", returns=[REVIEW], search=("text", "author_name"),
    sort=("stars", "created_at"),
)  # fmt: skip
def show_product_reviews(
    ctx: Context, *, product_id: Id, mine_only: bool = False
) -> Iterable[Answer]:
    """List the reviews of a product.

    product_id: the product's id
    mine_only: only what you wrote
    """
    ctx.find("products", product_id)
    for row in ctx.where("reviews", product_id=product_id):
        if not mine_only or row["owner_id"] == ctx.person:
            yield REVIEW(row, author_name=ctx.name_of(row["owner_id"]))


def _rate(ctx: Context, product: int) -> None:
    """Brings the product's mean rating up to date."""
    stars = [row["stars"] for row in ctx.where("reviews", product_id=product)]
    mean = round(sum(stars) / len(stars), 2) if stars else 0.0
    ctx.update("products", product, rating=mean, review_count=len(stars))


@AMAZON.api("POST", "/products/{product_id}/reviews", returns=created("review"))
def write_review(ctx: Context, *, product_id: Id, stars: Stars, text: Body = "") -> Answer:
    """Review a product that you have ordered; you can do it once a product.

    product_id: the product's id
    stars: from 1 to 5
    text: what you think of it
    """
    ctx.find("products", product_id)
    check(not ctx.mine("reviews", product_id=product_id), "You have already reviewed this product.")
    had = {item["product_id"] for order in ctx.mine("orders") for item in order["items"]}
    check(product_id in had, "You can only review what you have ordered.")
    row = ctx.insert(
        "reviews", owner_id=ctx.person, product_id=product_id, stars=stars, text=text,
        created_at=ctx.now,
    )  # fmt: skip
    _rate(ctx, product_id)
    return {"message": "Review added.", "review_id": row["id"]}


@AMAZON.api("PATCH", "/reviews/{review_id}")
def update_review(
    ctx: Context, *, review_id: Id, stars: Stars | None = None, text: Body | None = None
) -> Answer:
    """Change a review of yours.

    review_id: the review's id
    stars: from 1 to 5
    text: what you think of it
    """
    row = ctx.own("reviews", review_id)
    ctx.update("reviews", review_id, stars=stars, text=text)
    _rate(ctx, row["product_id"])
    return {"message": "Review updated."}


@AMAZON.api("DELETE", "/reviews/{review_id}")
def delete_review(ctx: Context, *, review_id: Id) -> Answer:
    """Delete a review of yours.

    review_id: the review's id
    """
    row = ctx.own("reviews", review_id)
    ctx.delete("reviews", review_id)
    _rate(ctx, row["product_id"])
    return {"message": "Review deleted."}


def _cart_line(ctx: Context, row: Row) -> Answer:
    line = _line(ctx.find("products", row["product_id"]), row["quantity"])
    return {"cart_item_id": row["id"], **line}


@AMAZON.api("GET", "/cart", returns={"items": [CART_LINE], "total": float})
def show_cart(ctx: Context) -> Answer:
    """Show what is in your cart and what it costs."""
    items = [_cart_line(ctx, row) for row in ctx.mine("cart_items")]
    return {"items": items, "total": _total(items)}


@AMAZON.api("POST", "/cart")
def add_to_cart(ctx: Context, *, product_id: Id, quantity: Quantity = 1) -> Answer:
    """Put a product into your cart; what is there already gets more.

    product_id: the product's id
    quantity: how many
    """
    ctx.find("products", product_id)
    rows = ctx.mine("cart_items", product_id=product_id)
    if rows:
        total = rows[0]["quantity"] + quantity
        check(total <= 50, "A cart can hold at most 50 of a product.")
        ctx.update("cart_items", rows[0]["id"], quantity=total)
    else:
        ctx.insert("cart_items", owner_id=ctx.person, product_id=product_id, quantity=quantity)
    return {"message": "Product added to the cart."}


def _in_cart(ctx: Context, product: int) -> Row:
    rows = ctx.mine("cart_items", product_id=product)
    check(bool(rows), f"The product with id {product} is not in your cart.")
    return rows[0]


@AMAZON.api("PATCH", "/cart")
def update_cart_quantity(ctx: Context, *, product_id: Id, quantity: Quantity) -> Answer:
    """Set how many of a product are in your cart.

    product_id: the product's id
    quantity: how many
    """
    ctx.update("cart_items", _in_cart(ctx, product_id)["id"], quantity=quantity)
    return {"message": "Cart updated."}


@AMAZON.api("DELETE", "/cart/product")
def remove_from_cart(ctx: Context, *, product_id: Id) -> Answer:
    """Take a product out of your cart.

    product_id: the product's id
    """
    ctx.delete("cart_items", _in_cart(ctx, product_id)["id"])
    return {"message": "Product removed from the cart."}


@AMAZON.api("DELETE", "/cart")
def clear_cart(ctx: Context) -> Answer:
    """Take everything out of your cart."""
    for row in ctx.mine("cart_items"):
        ctx.delete("cart_items", row["id"])
    return {"message": "Cart cleared."}


@AMAZON.api(
    "GET", "/wish_list", returns=[WISH], search=("name",), sort=("name", "price", "created_at")
)
def show_wish_list(ctx: Context) -> Iterable[Answer]:
    """List what you wish for."""
    for row in ctx.mine("wishes"):
        product = ctx.find("products", row["product_id"])
        yield WISH(row, name=product["name"], price=product["price"], stock=product["stock"])


@AMAZON.api("POST", "/wish_list")
def add_to_wish_list(ctx: Context, *, product_id: Id) -> Answer:
    """Put a product on your wish list.

    product_id: the product's id
    """
    ctx.find("products", product_id)
    check(
        not ctx.mine("wishes", product_id=product_id), "The product is already on your wish list."
    )
    ctx.insert("wishes", owner_id=ctx.person, product_id=product_id, created_at=ctx.now)
    return {"message": "Product added to the wish list."}


@AMAZON.api("DELETE", "/wish_list")
def remove_from_wish_list(ctx: Context, *, product_id: Id) -> Answer:
    """Take a product from your wish list.

    product_id: the product's id
    """
    rows = ctx.mine("wishes", product_id=product_id)
    check(bool(rows), f"The product with id {product_id} is not on your wish list.")
    ctx.delete("wishes", rows[0]["id"])
    return {"message": "Product removed from the wish list."}


@AMAZON.api("GET", "/addresses", returns=[ADDRESS])
def show_addresses(ctx: Context) -> Answer:
    """List the addresses that orders can go to."""
    return [ADDRESS(row) for row in ctx.mine("addresses")]


@AMAZON.api("POST", "/addresses", returns=created("address"))
def add_address(
    ctx: Context, *, label: Text, street_address: Text, city: Text, zip_code: Text
) -> Answer:
    """Add an address that orders can go to.

    label: what you call it
    street_address: house number and street
    city: the town
    zip_code: the postal code
    """
    row = ctx.insert(
        "addresses", owner_id=ctx.person, label=label, street_address=street_address, city=city,
        zip_code=zip_code,
    )  # fmt: skip
    return {"message": "Address added.", "address_id": row["id"]}


@AMAZON.api("DELETE", "/addresses/{address_id}")
def delete_address(ctx: Context, *, address_id: Id) -> Answer:
    """Delete an address; orders keep theirs.

    address_id: the address's id
    """
    ctx.own("addresses", address_id, "address")
    ctx.delete("addresses", address_id)
    return {"message": "Address deleted."}


@AMAZON.api("GET", "/payment_cards", returns=[CARD])
def show_payment_cards(ctx: Context) -> Answer:
    """List the cards that you can pay with."""
    return [CARD(row) for row in ctx.mine("payment_cards")]


@AMAZON.api("GET", "/orders", returns=[ORDER], sort=("ordered_at", "total"))
def show_orders(
    ctx: Context, *, status: Literal["placed", "delivered", "cancelled"] | None = None
) -> Iterable[Answer]:
    """List your orders.

    status: only those that stand so
    """
    return (ORDER(row) for row in ctx.mine("orders") if status in (None, row["status"]))


@AMAZON.api("GET", "/orders/{order_id}", returns=ORDER)
def show_order(ctx: Context, *, order_id: Id) -> Answer:
    """Show an order with its items.

    order_id: the order's id
    """
    return ORDER(ctx.own("orders", order_id))


@AMAZON.api("POST", "/orders", returns=created("order"))
def place_order(ctx: Context, *, address_id: Id, payment_card_id: Id) -> Answer:
    """Order what is in your cart, which is empty after it.

    address_id: where it goes
    payment_card_id: the card that pays
    """
    address = ctx.own("addresses", address_id, "address")
    card = ctx.own("payment_cards", payment_card_id)
    cart = ctx.mine("cart_items")
    check(bool(cart), "Your cart is empty.")
    check(card["expires_on"] >= ctx.now[:10], "The card has expired.")
    products = [ctx.find("products", row["product_id"]) for row in cart]
    for row, product in zip(cart, products, strict=True):
        enough = product["stock"] >= row["quantity"]
        check(enough, f"There are only {product['stock']} of the product with id {product['id']}.")
    items = []
    for row, product in zip(cart, products, strict=True):
        ctx.update("products", product["id"], stock=product["stock"] - row["quantity"])
        ctx.delete("cart_items", row["id"])
        items.append(_line(product, row["quantity"]))
    order = ctx.insert(
        "orders", owner_id=ctx.person, items=items, total=_total(items), status="placed",
        address=_line_of(address), payment_card_id=payment_card_id, ordered_at=ctx.now,
        delivered_at=None,
    )  # fmt: skip
    return {"message": "Order placed.", "order_id": order["id"]}


@AMAZON.api("POST", "/orders/{order_id}/cancel")
def cancel_order(ctx: Context, *, order_id: Id) -> Answer:
    """Cancel an order that has not been delivered.

    order_id: the order's id
    """
    order = ctx.own("orders", order_id)
    check(order["status"] == "placed", f"The order is already {order['status']}.")
    for item in order["items"]:
        product = ctx.find("products", item["product_id"])
        ctx.update("products", product["id"], stock=product["stock"] + item["quantity"])
    ctx.update("orders", order_id, status="cancelled")
    return {"message": "Order cancelled."}


@AMAZON.api("GET", "/returns", returns=[RETURN], sort=("created_at", "amount"))
def show_returns(ctx: Context) -> Iterable[Answer]:
    """List what you sent back."""
    for row in ctx.mine("returns"):
        yield RETURN(row, name=ctx.find("products", row["product_id"])["name"])


@AMAZON.api("POST", "/returns", returns=created("return"))
def return_product(
    ctx: Context, *, order_id: Id, product_id: Id, quantity: Quantity = 1, reason: Text = "other"
) -> Answer:
    """Send back items of a delivered order.

    order_id: the order's id
    product_id: which product of it
    quantity: how many
    reason: why
    """
    order = ctx.own("orders", order_id)
    check(order["status"] == "delivered", "Only delivered orders can be returned.")
    items = [item for item in order["items"] if item["product_id"] == product_id]
    check(bool(items), f"The product with id {product_id} is not part of the order.")
    gone = sum(r["quantity"] for r in ctx.mine("returns", order_id=order_id, product_id=product_id))
    left = items[0]["quantity"] - gone
    check(quantity <= left, f"Only {left} of this product can be returned.")
    row = ctx.insert(
        "returns", owner_id=ctx.person, order_id=order_id, product_id=product_id,
        quantity=quantity, amount=round(items[0]["price"] * quantity, 2), reason=reason,
        created_at=ctx.now,
    )  # fmt: skip
    return {"message": "Return noted.", "return_id": row["id"]}
