"""A holder from before comes back late, and the table that it writes to refuses it.

The comparison and the write are one statement: a check that is followed by a write would let a pause
in between.
"""

import os
import sqlite3

import polylatch

WRITE = "UPDATE account SET balance = :balance, fence = :token WHERE id = 1 AND fence <= :token"

table = sqlite3.connect(":memory:")
table.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL)")
table.execute("INSERT INTO account VALUES (1, 100, 0)")


def write(balance: int, guard: polylatch.Guard) -> bool:
    """Returns whether the table took it."""
    return table.execute(WRITE, {"balance": balance, "token": guard.fencing_token}).rowcount == 1


with polylatch.connect(os.environ.get("POLYLATCH_URL", "memory:")) as client:
    # The first holder's lease is short and not renewed: as if its process were paused for long.
    paused = client.lock("account/1", lease=0.2, renew=False).acquire()
    assert paused.lost.wait(10)

    with client.lock("account/1", wait=10) as guard:
        assert write(150, guard)
        print(f"the second holder writes with token {guard.fencing_token}")

    # It goes on where it was, without asking. (`check` would have raised LeaseLost.)
    assert not write(90, paused)
    print(f"the first holder comes back with token {paused.fencing_token}: its write is refused")
    try:
        paused.check()
    except polylatch.LeaseLost as error:
        print(f"and it learns: {error}")

(balance,) = table.execute("SELECT balance FROM account").fetchone()
assert balance == 150
