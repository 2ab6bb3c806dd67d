"""The same as contender.mjs, for the Python package: contender.py PORT NAME."""

import sys
import threading
import time

import polylatch

port, name = sys.argv[1:3]
client = polylatch.connect(f"redis://127.0.0.1:{port}")
print("ready", flush=True)
sys.stdin.readline()
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
sections = []
while not done.is_set():
    guard = client.lock(name, lease=10).acquire()
    acquired = time.monotonic_ns()
    released = time.monotonic_ns()
    guard.release()
    sections.append(f"{acquired} {released}")
print("\n".join(sections))
client.close()
