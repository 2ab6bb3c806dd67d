"""What is held when a process ends in good order is released."""

from __future__ import annotations

import atexit
import os
import sys

from ._polylatch import _close_all


class _Anchor:
    """Something for multiprocessing to hold on to, as long as this module lives."""


_anchor = _Anchor()


def arrange() -> None:
    """Closes the clients when this process ends in good order, and so in those that it forks."""
    atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_arrange_in_worker)
    _arrange_in_worker()


def _arrange_in_worker() -> None:
    # The worker processes of multiprocessing end without atexit's functions, but with finalizers of
    # its own. It forgets those when a worker starts, and then runs what was registered for that.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        _arrange_finalizer()
        util.register_after_fork(_anchor, _arrange_finalizer)


def _arrange_finalizer(_anchor: object = None) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _close_all, exitpriority=10)
