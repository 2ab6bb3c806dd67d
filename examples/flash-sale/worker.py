"""A worker of the flash sale: ``worker.py URL SHOP``. See README.md.

A line in is a buyer, a line out the answer: ``order 17``, ``sold out``, or ``busy`` (ask again later).
"""

import socket
import sys
from functools import partial

import polylatch


class Shop:
    """The order service of another team. It has no key that would refuse a second order of one buyer."""

    def __init__(self, place: str) -> None:
        host, port = place.rsplit(":", 1)
        self.wire = socket.create_connection((host, int(port)))
        self.lines = self.wire.makefile("r")

    def ask(self, line: str) -> str:
        self.wire.sendall(f"{line}\n".encode())
        return self.lines.readline().rstrip("\n")

    def order(self, buyer: str, claim: "polylatch.Claim | None" = None) -> str:
        # What a run before this one may have ordered, if it died before it could say so.
        before = self.ask(f"find {buyer}")
        if before != "none":
            return before
        if claim is not None:
            claim.check()  # another worker may have taken over from one that stood still
        return self.ask(f"order {buyer}")


def main(url: str, place: str, *how: str) -> None:
    shop = Shop(place)
    with polylatch.connect(url) as client:
        for line in sys.stdin:
            buyer = line.strip()
            if "--without-idempotency" in how:
                answer = shop.order(buyer)
            else:
                orders = client.idempotency(f"flash-sale/{buyer}")
                try:
                    # One order for each buyer, however often the button is pressed.
                    work = partial(shop.order, buyer)
                    answer = orders.run("order", work, payload="one item", lease=4, wait=0).value
                except (polylatch.InProgress, polylatch.NotRecorded):
                    answer = "busy"
            print(answer, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
