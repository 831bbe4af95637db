"""Every error that envmgr raises on purpose.

An error here says four things: what happened, to which env, in which state, and what to do.
The tree::

    EnvManagerError (RuntimeError)
    |-- EnvInitError            an env could not be built, or its worker did not come up
    |-- EnvStepError            an env raised in ``step``
    |-- EnvResetError           an env raised in ``reset`` more often than it may
    |-- EnvTimeoutError         (TimeoutError)     a call took longer than its limit
    |   `-- EnvInitTimeoutError (EnvInitError)     a worker did not come up in time
    |-- WorkerDied              a worker process ended: pid, exit code or signal
    |-- ManagerClosedError      (AssertionError)   used after ``close``
    |-- IllegalStateError       (AssertionError)   a call that this state does not allow
    |   `-- UnknownEnvError     (KeyError)         an env_id that does not exist
    |-- ConfigError             (ValueError)       a wrong key, type or range
    |-- SpaceMismatchError      (ValueError)       a value that does not fit its space
    `-- ShmError                (OSError)          shared memory could not be had

Beside it stands EnvManagerWarning (UserWarning), the category of every warning that envmgr gives.

Nothing but the classes lives here; who raises which is said where it is raised. The classes
import nothing of envmgr, so that every layer may raise them.
"""

from __future__ import annotations

from typing import Any


class EnvManagerError(RuntimeError):
    """Base of every error that envmgr raises on purpose.

    Attributes:
        env_id: Index of the env concerned, or None when the error is not about one env.
        child_traceback: The traceback in the worker as text, or None when there is none.
        child_heading: What stands above it in the text: where the env lives is not always a worker.
    """

    child_heading: str = "in the worker"

    def __init__(
        self,
        message: str = "",
        *,
        env_id: int | None = None,
        child_traceback: str | None = None,
    ) -> None:
        self.message = message
        self.env_id = env_id
        self.child_traceback = child_traceback
        super().__init__(message)

    def __str__(self) -> str:
        if not self.child_traceback:
            return self.message
        return f"{self.message}\n\n--- {self.child_heading} ---\n{self.child_traceback.rstrip()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[EnvManagerError], message: str, state: dict[str, Any]) -> EnvManagerError:
    """Makes an error again after pickling, whatever its constructor asks for."""
    error = cls.__new__(cls, message)
    EnvManagerError.__init__(error, message)
    error.__dict__.update(state)
    return error


class EnvInitError(EnvManagerError):
    """An env could not be built, or its worker did not come up in time."""


class EnvStepError(EnvManagerError):
    """An env raised in ``step``; ``__cause__`` is its own exception where it could be rebuilt."""


class EnvResetError(EnvManagerError):
    """An env raised in ``reset`` on each of its allowed attempts."""


class EnvTimeoutError(EnvManagerError, TimeoutError):
    """A step, a reset or a start took longer than its limit (seconds, in ``limit``)."""

    def __init__(
        self,
        message: str = "",
        *,
        env_id: int | None = None,
        child_traceback: str | None = None,
        limit: float | None = None,
    ) -> None:
        super().__init__(message, env_id=env_id, child_traceback=child_traceback)
        self.limit = limit


class EnvInitTimeoutError(EnvInitError, EnvTimeoutError):
    """A worker did not come up within ``connect_timeout``: its env_fn took too long."""


class WorkerDied(EnvManagerError):  # noqa: N818 - a name the contract fixes
    """A worker process ended while it was needed.

    Attributes:
        pid: Process id the worker had.
        exitcode: Its exit code as multiprocessing counts it (negative: the signal), or None
            when nobody could learn it.
        signal_name: Such as ``'SIGKILL'``, or None when it was not a signal.
        env_ids: Every env that the worker hosted.
    """

    def __init__(
        self,
        message: str = "",
        *,
        env_id: int | None = None,
        child_traceback: str | None = None,
        pid: int | None = None,
        exitcode: int | None = None,
        signal_name: str | None = None,
        env_ids: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message, env_id=env_id, child_traceback=child_traceback)
        self.pid = pid
        self.exitcode = exitcode
        self.signal_name = signal_name
        self.env_ids = env_ids


class ManagerClosedError(EnvManagerError, AssertionError):
    """The manager is closed, or was never launched; ``launch()`` makes it usable (again)."""


class IllegalStateError(EnvManagerError, AssertionError):
    """A call that the state of the manager or of an env does not allow."""


class UnknownEnvError(IllegalStateError, KeyError):
    """An env_id that this manager does not have."""


class ConfigError(EnvManagerError, ValueError):
    """A config key that is unknown, or whose value has a wrong type or range."""


class SpaceMismatchError(EnvManagerError, ValueError):
    """A value whose structure, shape or dtype does not fit the space it belongs to."""


class ShmError(EnvManagerError, OSError):
    """Shared memory could not be had: how much was needed, how much is free, what to do."""


class EnvManagerWarning(UserWarning):
    """Something works, but hardly as it was meant: a lossy cast, a dropped info value."""
