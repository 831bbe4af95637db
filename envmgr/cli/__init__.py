"""The ``envmgr`` command.

typer and rich are imported in this package only, and only when the command itself runs: a worker that
unpickles an :class:`~envmgr.cli.env_factory.EnvFactory`, or a script that takes a policy from here, pays for
neither.
"""

from __future__ import annotations


def main() -> None:
    """Runs the command; this is what the ``envmgr`` script and ``python -m envmgr`` call."""
    from envmgr.cli.app import app

    app(prog_name="envmgr")
