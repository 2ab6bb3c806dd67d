"""Closes the files of `sqlite:` stores while a process forks, so that its children can open them."""

from __future__ import annotations

import os

from ._polylatch import _after_fork_in_parent, _before_fork


def arrange() -> None:
    """Has the clients of `sqlite:` stores that hold nothing close their files around every fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
