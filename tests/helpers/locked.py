"""A module with a lock, as logging, import machinery and many libraries have one."""

import threading

LOCK = threading.Lock()
