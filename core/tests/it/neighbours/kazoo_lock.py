"""`hold AT PATH` holds the lock until a line comes; `sections AT PATH COUNT FOLDER` makes the folder in each section."""

import os
import sys

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
            try:
                os.mkdir(inside)
                os.rmdir(inside)
            except OSError:
                overlaps += 1
    print("overlaps", overlaps, flush=True)
client.stop()
