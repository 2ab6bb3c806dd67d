"""A worker of redis-py; see fleet.py. `redis_py.py PORT KEY`."""

import random
import sys
import threading
import time

import redis


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


port, key = sys.argv[1:]
client = redis.Redis(port=int(port))
client.ping()
print("ready", flush=True)
sys.stdin.readline()
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
# As its users have it: it asks every 0.1 s.
lock = client.lock(key, timeout=20)
while not over.is_set():
    asked = now()
    lock.acquire()
    entered = now()
    time.sleep(0.05)
    left = now()
    lock.release()
    print(asked, entered, left, flush=True)
    time.sleep(random.uniform(0.01, 0.06))
