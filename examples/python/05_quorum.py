"""A lock on a quorum of independent servers: no single one of them can lose it, and none has to be up.

    POLYLATCH_URL=redlock://10.0.0.1,10.0.0.2,10.0.0.3 python 05_quorum.py

The program is the same as for one server: what differs is the URL, and what the store can promise.
"""

import os

import polylatch

url = os.environ.get("POLYLATCH_URL", "memory:quorum")
if not url.startswith("redlock:"):
    print("this is not a quorum; set POLYLATCH_URL to redlock://HOST,HOST,HOST to see one")

with polylatch.connect(url) as client:
    capability = client.capability
    print(f"{capability['backend']}: fencing tokens are {capability['fencing']}")
    with client.lock("ledger", lease=10, wait=10) as guard:
        # The lease counts from before the request left, so slow nodes make it shorter, never longer.
        print(f"held with token {guard.fencing_token}, for another {guard.remaining:.1f} s at least")
        # To another client it does not matter which nodes answer: more than half have to agree.
        with polylatch.connect(url) as other:
            assert other.lock("ledger").try_acquire() is None
    with client.lock("ledger", wait=10) as again:
        assert again.fencing_token > guard.fencing_token
