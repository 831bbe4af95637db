"""The commands and their options. Each hands over to a module of its own, imported when it is called."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envmgr import __version__
from envmgr.cli.checking.target import TargetError
from envmgr.errors import EnvManagerError

app = typer.Typer(
    help="Steps many reinforcement-learning environments at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]

_TARGET = "'module:factory', 'path/to/file.py:factory' or 'gymnasium:CartPole-v1'."


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"envmgr {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A .py, .yaml or .yml config, or a module's name.")],
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes to collect.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the files; they go into a folder named after the run.")
    ] = None,
    type: Annotated[str | None, typer.Option(help="The env manager to use (see: envmgr list).")] = None,
    env_num: Annotated[int | None, typer.Option(min=1, help="How many envs.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Base seed of envs and policy.")] = None,
    progress: Annotated[bool, typer.Option(help="Show how it goes.")] = True,
    debug: Debug = False,
) -> None:
    """Collect episodes as a config says; leave numbers, rollouts and a picture behind."""
    from envmgr.cli.plan import Options
    from envmgr.cli.run import run as run_config

    with _one_message(debug):
        code = run_config(config, Options(episodes, out, type, env_num, seed), Console(), progress=progress)
    raise typer.Exit(code)


@app.command("list")
def list_managers(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the env managers that a config can name."""
    from envmgr.cli.list_managers import rows, show

    with _one_message(debug):
        if as_json:
            typer.echo(json.dumps(rows(), indent=2))
        else:
            show(Console())


@app.command()
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """Look at this machine: cores, start methods, memory, limits, versions, and what to do about them."""
    from envmgr.cli.doctor import as_dict, show

    with _one_message(debug):
        if as_json:
            typer.echo(json.dumps(as_dict(), indent=2))
        else:
            show(Console())


@app.command()
def check(
    env: Annotated[str, typer.Argument(help=_TARGET)],
    steps: Annotated[int, typer.Option(min=1, help="Random steps to look at.")] = 300,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a call of the env counts as hanging.")
    ] = 20.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here, too.")] = None,
    debug: Debug = False,
) -> None:
    """Look whether an env keeps its word, in a worker: what would go wrong, and do processes pay for it."""
    from envmgr.cli.check import check as check_target

    with _one_message(debug):
        code = check_target(env, Console(), steps=steps, timeout=timeout, file=json_file)
    raise typer.Exit(code)


@app.command()
def bench(
    env: Annotated[str, typer.Argument(help=_TARGET)],
    envs: Annotated[int, typer.Option(min=1, help="How many envs step together.")] = 8,
    seconds: Annotated[float, typer.Option(min=0.001, help="Seconds of each measurement.")] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each layout, taken in turn.")] = 3,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a step or a reset may take.")] = 60.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers here, too.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw a picture of them here.")] = None,
    debug: Debug = False,
) -> None:
    """Measure which layout of workers is the fastest for an env here, and say what to configure."""
    from envmgr.cli import bench as benches

    with _one_message(debug):
        how = benches.Bench(envs, seconds, repeats, timeout)
        benches.bench(env, Console(), how, json_file=json_file, png=png)


@contextlib.contextmanager
def _one_message(debug: bool) -> Iterator[None]:
    """Says an error of envmgr in one message, without the command's own traceback; exit code 1.

    What the message holds of a worker's traceback, with the user's own lines, stays.
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read our output has gone (`envmgr list | head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (EnvManagerError, OSError) as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, TargetError) else 1) from None
