"""`hold AT PATH MODE` holds the lock until a line comes.

`sections AT PATH COUNT FOLDER KIND` writes a file into the folder in each section, and reads who else is inside. Mode and kind are
mutex. `enter AT PATH NAME SECONDS FILE` enters sections until its input ends, and appends to the file when it entered and left;
seconds are the timeout of its session.
"""

import os
import sys
import threading
import time
import uuid

from kazoo.client import KazooClient

mode, at, path = sys.argv[1:4]
client = KazooClient(hosts=at, timeout=float(sys.argv[5]) if mode == "enter" else 10)
client.start()
# Without the pattern it counts only its own kind of node.
lock = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])
if mode == "hold":
    with lock:
        print("held", flush=True)
        sys.stdin.readline()
elif mode == "enter":
    name, history = sys.argv[4], os.open(sys.argv[6], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()

    def write(what):
        # One call of write for each line, so that lines of several programs do not mix.
        os.write(history, f"{what} {name} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n".encode())

    while not over.is_set():
        with lock:
            write("enter")
            time.sleep(0.002)
            write("leave")
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
