"""What happens to locks, for :mod:`logging` and for the callbacks of clients."""

from __future__ import annotations

import logging

# As `typing` has it, which takes longer to import than everything here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from ._polylatch import Event

logger = logging.getLogger("polylatch")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


def deliver(event: Event, line: str, on_event: Optional[Callable[[Event], object]]) -> None:
    """Logs one event, and calls back. Runs on the thread for callbacks, or at exit."""
    logger.log(_LEVELS[event["level"]], "%s", line, extra={"polylatch": event})
    if on_event is not None:
        try:
            on_event(event)
        except Exception:
            logger.exception("on_event raised; the locks are not affected")
