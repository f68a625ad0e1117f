"""The four tools of the lab, with the libraries that every server in Python uses: aiohttp and redis-py.

The servers differ in what carries a call to these functions. They run in a Python of their own, so nothing is
imported from elsewhere in the tests. ``SHOP_API`` and ``SHOP_REDIS`` are the addresses of the API and of Redis.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import aiohttp  # type: ignore[import-not-found,unused-ignore]  # it is installed in the lab alone
from redis.asyncio import Redis

KEPT_ORDERS = 10


@cache
def session() -> Any:
    """Return the HTTP client of this process; it has to be called in the event loop."""
    return aiohttp.ClientSession(
        os.environ["SHOP_API"], connector=aiohttp.TCPConnector(limit=100), raise_for_status=True
    )


@cache
def redis() -> Any:
    """Return the Redis client of this process."""
    return Redis.from_url(os.environ["SHOP_REDIS"], decode_responses=True)


async def search(query: str, limit: int = 10) -> dict[str, Any]:
    """Search the products of the shop: one request to its API."""
    async with session().get("/products", params={"q": query, "limit": str(limit)}) as response:
        found: dict[str, Any] = json.loads(await response.read())
    return found


async def cart(user: str) -> dict[str, Any]:
    """Return the cart of a user and the latest orders: two commands to Redis in one round trip."""
    async with redis().pipeline(transaction=False) as pipe:
        pipe.hgetall(f"cart:{user}")
        pipe.lrange(f"orders:{user}", 0, KEPT_ORDERS - 1)
        items, orders = await pipe.execute()
    return {"user": user, "items": items, "orders": orders}


async def checkout(user: str) -> dict[str, Any]:
    """Order what is in a user's cart: Redis, a request to the API, and Redis again."""
    items = await redis().hgetall(f"cart:{user}")
    async with session().post("/orders", json={"user": user, "items": items}) as response:
        order: dict[str, Any] = json.loads(await response.read())
    async with redis().pipeline(transaction=False) as pipe:
        pipe.lpush(f"orders:{user}", order["id"])
        pipe.ltrim(f"orders:{user}", 0, KEPT_ORDERS - 1)
        pipe.incrby("revenue", order["total"])
        await pipe.execute()
    return order


async def distance(one: str, other: str) -> int:
    """Return the edit distance of two texts: nothing but computation."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        diagonal, row[0] = row[0], number
        for place, its in enumerate(other, 1):
            diagonal, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, diagonal + (letter != its)),
            )
    return row[-1]


TOOLS = (search, cart, checkout, distance)
