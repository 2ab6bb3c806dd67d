"""A first lock: two workers, one at a time, in the order in which they came.

Runs against the store in `POLYLATCH_URL`, or inside this process: `python 01_first_lock.py`.
"""

import os
import threading

import polylatch

with polylatch.connect(os.environ.get("POLYLATCH_URL", "memory:")) as client:
    first = client.lock("orders/42", label="charge the card").acquire()
    print(f"first worker holds {first.name} with token {first.fencing_token}")

    # A client that does not wait gets an answer at once.
    assert client.lock("orders/42").try_acquire() is None

    # A client that waits is queued, and the release notifies it.
    tokens: "list[int]" = []

    @client.lock("orders/42", label="send the receipt", wait=10)
    def send_the_receipt() -> None:
        (holder,) = client.inspect("orders/42")["locks"][0]["holders"]
        tokens.append(holder["fencing_token"] or 0)

    second = threading.Thread(target=send_the_receipt)
    second.start()
    first.release()
    second.join()
    print(f"second worker held {first.name} with token {tokens[0]}")
    assert tokens[0] > first.fencing_token
