"""The command line: the verbs of the library, for people and for programs.

Where a person looks there are tables, colours and live charts; where a program reads there are plain lines, or JSON
with `--json`. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such run or out of reach, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, NoReturn

import click

from sightglass.core.errors import RunLostError, RunNotFoundError, SightglassError

EXIT_FAILED: Final = 1
EXIT_NO_RUN: Final = 3
EXIT_INTERRUPTED: Final = 130


class CommandGroup(click.Group):
    """Commands whose errors become one line and an exit code, in one place."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (RunNotFoundError, RunLostError) as error:
            fail(str(error), EXIT_NO_RUN)
        except SightglassError as error:
            fail(str(error), EXIT_FAILED)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader has enough. Python would complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong, and exit."""
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {message}", err=True)
    sys.exit(code)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sightglass")
def main() -> None:
    """Ask a training run anything while it runs.

    RUN is a live run's name or id (see `sightglass runs`), or a connection file. Where nothing has to be done to it,
    RUN may also be a recorded one: a run directory, a folder of such, a file of a saved stream, a summary directory
    of MindSpore or a log directory of TensorBoard.
    """


@main.command()
@click.argument("names", nargs=-1)
def functions(names: tuple[str, ...]) -> None:
    """List the functions that queries can call."""
    from sightglass.query.functions import FUNCTIONS

    for name, function in sorted(FUNCTIONS.items()):
        if not names or name in names:
            click.echo(f"{click.style(function.signature, bold=True)}\n    {function.doc}")


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-browser", is_flag=True, help="Only print the link of the page.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def demo(arguments: tuple[str, ...], no_browser: bool) -> None:
    """Train a small network on handwritten digits, and watch it from the terminal and in a browser.

    The arguments go to the training: --forever, --epochs N, --delay-ms MS, --lr RATE, --activation NAME …
    """
    from sightglass.demo.show import show

    sys.exit(show(arguments, browser=not no_browser))
