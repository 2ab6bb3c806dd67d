"""Forked children, and servers that fork."""

import os
import signal
import socket
import traceback
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from conftest import PATIENCE, wait_until


def in_a_child(work):
    """Runs a function in a forked child; what it raises is raised here."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reads)
            work()
            os.write(writes, b"done")
        except BaseException as error:
            trace = traceback.format_exception(type(error), error, error.__traceback__)
            os.write(writes, "".join(trace).encode())
        finally:
            os._exit(0)
    os.close(writes)
    try:
        wait_until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT), "the child ends")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
        assert said == "done", f"the child said {said!r}"


def answers_of_gunicorn(program, url, name, tmp_path, script):
    """Serves a program by workers that are forked after it is loaded. Returns the words of their answers, and the server.

    The program finds its store and its lock in TEST_URL and TEST_LOCK; the first word of an answer is the worker.
    """
    (tmp_path / "program.py").write_text(program)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = script(
        """
        import os, sys
        os.environ["TEST_URL"], os.environ["TEST_LOCK"] = sys.argv[1:3]
        sys.path.insert(0, os.getcwd())
        sys.argv = ["gunicorn", "--preload", "--workers", "3", "--bind", sys.argv[3], "--log-level", "error",
                    "program:app"]
        import warnings
        warnings.simplefilter("ignore")
        from gunicorn.app.wsgiapp import run
        run()
        """,
        url,
        name,
        f"127.0.0.1:{port}",
    )

    def get():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as reply:
            return reply.read().decode().split()

    def answers():
        try:
            return get()
        except OSError:
            assert server.process.poll() is None, server.end()
            return None

    wait_until(answers, "gunicorn answers")
    replies = []

    def several_workers_have_answered():
        # At the same time: one after the other, the system may give all of them to one worker.
        with ThreadPoolExecutor(max_workers=6) as together:
            replies.extend(together.map(lambda _: get(), range(60)))
        return len({worker for worker, *_ in replies}) > 1

    wait_until(several_workers_have_answered, "more than one worker answers")
    return replies, server
