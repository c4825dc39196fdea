"""The command line: the verbs of the library, for people and for programs.

In a terminal, commands print tables, colours and live charts; in a pipe, plain lines, or JSON with `--json`.
Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the run was not found or does not answer, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Final, NoReturn

import click

from sightglass.core.errors import RunLostError, RunNotFoundError, SightglassError
from sightglass.core.redact import visible

EXIT_FAILED: Final = 1
EXIT_NO_RUN: Final = 3
EXIT_INTERRUPTED: Final = 130  # what a shell reports for a command that Ctrl-C ended: 128 + SIGINT

SECTIONS: Final = {
    "Get started": ("demo", "ui", "links", "mcp", "hub"),
    "Watch runs": ("runs", "top", "describe", "diagnose", "stack", "ask", "watch", "alerts", "functions"),
    "Control a live run": ("set", "call", "pause", "resume", "stop", "history"),
    "Record, open and export": ("record", "open", "which", "annotate", "check", "export", "replot"),
}

ON_HUB: Final = (
    *("ui", "mcp", "runs", "top", "describe", "diagnose", "stack", "ask", "watch", "alerts"),
    *("set", "call", "pause", "resume", "stop", "history", "record"),
)  # fmt: skip


def _choose_hub(ctx: click.Context, param: click.Parameter, hub: str | None) -> None:
    """Keep the hub that is named behind a command as if it were named before."""
    if hub:
        ctx.find_root().params["hub"] = hub


HUB: Final = click.Option(
    ["--hub"], metavar="HUB", expose_value=False, is_eager=True, callback=_choose_hub,
    help="Look on this hub: a URL such as nats://login:4222, or a hub file.",
)  # fmt: skip


class CommandGroup(click.Group):
    """Commands in sections, whose errors become one line and an exit code."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; one that can look on a hub takes `--hub`, too."""
        if (name or cmd.name) in ON_HUB:
            cmd.params.append(HUB)
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the help text."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                width = formatter.width - 6 - max(map(len, names))  # less the indent and the space between columns
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (RunNotFoundError, RunLostError) as error:
            fail(str(error), EXIT_NO_RUN)
        except SightglassError as error:
            fail(str(error), EXIT_FAILED)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe. Without this, Python prints an error when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


def _show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Print a warning without the place in the code, which means nothing to those who typed a command."""
    click.echo(f"{click.style('Warning:', fg='yellow', bold=True)} {visible(str(message))}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print an error, and exit."""
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {visible(message)}", err=True)
    sys.exit(code)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sightglass")
@click.option("--hub", metavar="HUB", help="Look for RUN on this hub: a URL such as nats://login:4222, or a hub file.")
@click.pass_context
def main(ctx: click.Context, hub: str | None) -> None:
    """Ask a training run anything while it runs.

    RUN is the name or id of a live run (see `sightglass runs`), or a connection file. Commands that only read also
    accept a recorded run: a run directory, a folder of runs, a file of `Stream.save`, a MindSpore summary directory
    or a TensorBoard log directory. To watch or command several live runs, give a pattern such as 'sweep-*'.

    New here? Run `sightglass demo`.
    """
    if hub and ctx.invoked_subcommand not in ON_HUB:
        raise click.UsageError(f"Expected one of these commands with --hub: {', '.join(ON_HUB)}")


def _function_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the functions whose names begin with what was typed."""
    from sightglass.query.functions import FUNCTIONS

    return [name for name in sorted(FUNCTIONS) if name.startswith(incomplete)]


@main.command()
@click.argument("names", nargs=-1, shell_complete=_function_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def functions(names: tuple[str, ...], as_json: bool) -> None:
    """List the functions that queries can call.

    With NAMES, list only these.
    """
    from sightglass.core.errors import unknown
    from sightglass.query.functions import FUNCTIONS

    wrong = next((name for name in names if name not in FUNCTIONS), None)
    if wrong is not None:
        raise click.ClickException(unknown("function", wrong, FUNCTIONS))
    found = [function for name, function in sorted(FUNCTIONS.items()) if not names or name in names]
    if as_json:
        click.echo(json.dumps([{"name": one.name, "signature": one.signature, "doc": one.doc} for one in found]))
        return
    for function in found:
        click.echo(f"{click.style(function.signature, bold=True)}\n    {function.doc}")


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-browser", is_flag=True, help="Do not open a browser; only print the link.")
@click.option("--serve", is_flag=True, help="Train and serve the page until Ctrl-C, as in a terminal.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def demo(arguments: tuple[str, ...], no_browser: bool, serve: bool) -> None:
    """Train a small network, and watch it here and in a browser.

    The network learns handwritten digits with NumPy until Ctrl-C. Arguments go to the training: --epochs N, after
    which it ends, --delay-ms MS, --lr RATE, --activation NAME …
    """
    from sightglass.demo.show import show

    sys.exit(show(arguments, browser=not no_browser, serve=serve))
