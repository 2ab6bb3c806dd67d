"""What is held when the interpreter exits is released."""

import atexit
import os
import sys

from ._polylatch import _close_all


def arrange() -> None:
    """Closes the clients when this process ends in good order."""
    atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_arrange_in_worker)
    _arrange_in_worker()


def _arrange_in_worker() -> None:
    # The worker processes of multiprocessing end without atexit's functions, but with its own.
    multiprocessing = sys.modules.get("multiprocessing")
    util = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None and util is not None:
        util.Finalize(None, _close_all, exitpriority=10)
