"""The HTTP API of the shop: ``python -m tests.benchmarks.lab.api PORT``.

It has 100,000 products in memory, and finds them by the words of their names. It is a bare protocol of asyncio, so
that it takes little of the processor that it shares with Redis and the load generator.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import defaultdict
from functools import lru_cache
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httptools
import uvloop
from pydantic_core import from_json, to_json

PRODUCTS = 100_000
COLOURS = ("red", "green", "blue", "black", "white", "grey", "amber", "ivory", "coral", "olive")
MATERIALS = ("steel", "oak", "linen", "glass", "cotton", "wool", "leather", "copper", "paper", "marble")
KINDS = ("lamp", "chair", "table", "shelf", "vase", "clock", "rug", "bowl", "desk", "frame")
_MOST = 100


def name_of(number: int) -> str:
    """Return the name of a product."""
    parts = (KINDS[number % 10], MATERIALS[number // 10 % 10], COLOURS[number // 100 % 10])
    return f"{parts[2]} {parts[1]} {parts[0]} {number}"


class Shop:
    """Products by number, and their numbers by each word of their names."""

    def __init__(self) -> None:
        self.prices = [100 + number * 7919 % 50_000 for number in range(PRODUCTS)]
        self.texts = [
            to_json({"id": number, "name": name_of(number), "price": self.prices[number], "stock": number % 50})
            for number in range(PRODUCTS)
        ]
        found: dict[str, list[int]] = defaultdict(list)
        for number in range(PRODUCTS):
            for word in name_of(number).split():
                found[word].append(number)
        self.numbers = {word: frozenset(numbers) for word, numbers in found.items()}
        self.orders = count(1)
        self.search = lru_cache(maxsize=None)(self._found)
        """Return the products whose names have all words of a query, in order, as JSON; results are cached."""

    def _found(self, query: str, limit: int) -> bytes:
        sets = sorted((self.numbers.get(word, frozenset[int]()) for word in query.split()), key=len)
        numbers = frozenset.intersection(*sets) if sets else frozenset[int]()
        shown = b",".join(self.texts[number] for number in sorted(numbers)[: min(limit, _MOST)])
        return b'{"total":%d,"products":[%b]}' % (len(numbers), shown)

    def order(self, order: Any) -> bytes:
        """Return an order of a user, with the sum of its prices."""
        total = sum(self.prices[int(number)] * int(amount) for number, amount in order["items"].items())
        return to_json({"id": next(self.orders), "user": order["user"], "total": total, "items": len(order["items"])})


class ShopProtocol(asyncio.Protocol):
    """One connection.

    Args:
        shop: The shop that answers.
    """

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._body = b"", b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        parts, body = urlsplit(self._url.decode()), self._body
        self._url = self._body = b""
        if parts.path == "/orders":
            answer = self._shop.order(from_json(body))
        else:
            query = parse_qs(parts.query)
            answer = self._shop.search(query["q"][0], int(query["limit"][0]))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(answer) + answer)


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    shop = Shop()
    listening = socket.create_server(("127.0.0.1", port), backlog=512)
    server = await asyncio.get_running_loop().create_server(lambda: ShopProtocol(shop), sock=listening)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
