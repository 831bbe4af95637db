"""The log of the package: the logger ``envmgr``, made safe to call from anywhere.

A handler is the program's own and may raise: its server is gone, or the program has closed ``sys.stderr``,
and even Python's last resort raises. What is logged here is mostly that something has gone wrong, and often
where an exception would leave things half done. So a record that cannot be handled is lost, and nothing else.
"""

from __future__ import annotations

import logging
import threading
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that never raises what its handlers do."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Logs a record, as the line that called this or one of ``debug`` to ``exception``."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # this frame is none of the caller's
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # see above
            return
        except BaseException:  # a handler's SystemExit; in the main thread it may be a Ctrl-C, or a signal's
            if threading.current_thread() is threading.main_thread():
                raise


log = SafeLogger(logging.getLogger("envmgr"), None)
