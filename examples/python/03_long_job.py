"""A job that outlasts its lease many times, and one that hangs.

Renewal goes on beside the work, even while the interpreter is held. So that a job that hangs does not
keep its lock for ever, it says now and then that it moves on.
"""

import os
import time

import polylatch

with polylatch.connect(os.environ.get("POLYLATCH_URL", "memory:")) as client:
    with client.lock("report", lease=1) as guard:
        for _ in range(10):
            time.sleep(0.25)
            guard.check()
        print(f"two and a half seconds of work under a lease of one, renewed {guard.renewals} times")

    job = client.lock("report", lease=1.2, beat_every=1, max_hold=60).acquire()
    for page in range(3):
        time.sleep(0.2)
        job.beat()
        print(f"page {page + 1} is done")
    # Here it hangs, and beats no more.
    assert job.lost.wait(30)
    print(f"the job hangs: its lock is lost ({job.lost.reason}) and free for others")
    client.lock("report", wait=10).acquire().release()
