"""`hold AT PATH MODE` holds the lock until a line comes.

`sections AT PATH COUNT FOLDER KIND` writes a file into the folder in each section, and reads who else is inside. Mode and kind are
mutex.
"""

import os
import sys
import uuid

from kazoo.client import KazooClient

mode, at, path = sys.argv[1:4]
client = KazooClient(hosts=at)
client.start()
# Without the pattern it counts only its own kind of node.
lock = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
if mode == "hold":
    with lock:
        print("held", flush=True)
        sys.stdin.readline()
else:
    print("ready", flush=True)
    count, inside = int(sys.argv[4]), sys.argv[5]
    overlaps = 0
    for _ in range(count):
        with lock:
            own = os.path.join(inside, f"write {uuid.uuid4()}")
            open(own, "x").close()
            overlaps += len(os.listdir(inside)) != 1
            os.unlink(own)
    print("overlaps", overlaps, flush=True)
client.stop()
