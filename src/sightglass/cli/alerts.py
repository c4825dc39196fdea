"""The command that watches runs by rules, and tells people."""

from __future__ import annotations

import datetime
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.errors import AlertError

from .find_run import JSON, hub
from .group import main
from .output import echo, print_json, print_rows

if TYPE_CHECKING:
    from sightglass.alerts.alert import Alert

STATE: Final = ".alerts"
"""What the folder of a watcher's journal is called, behind the name of its file of rules."""


@main.command()
@click.argument("what", metavar="RULES|status|test")
@click.argument("rules", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--connections", metavar="FOLDER", help="Also watch the runs of the connection files in this folder.")
@JSON
def alerts(what: str, rules: Path | None, connections: str | None, as_json: bool) -> None:
    """Watch all runs by rules, and tell people.

    Runs that live now, and those that begin later. Crashed, stuck, silent and failed runs are told of in any case.
    SIGHTGLASS_ALERT_URL says where alerts go: addresses that apprise knows, such as mailto://…, or exec:PROGRAM, one a
    line.

    \b
      sightglass alerts rules.toml           watch until Ctrl-C
      sightglass alerts status rules.toml    what each rule has seen in each run
      sightglass alerts test                 send one alert, to see whether it arrives
    """  # noqa: D301  click reads the backspace
    if what == "test":
        _test()
    elif what == "status":
        if rules is None:
            raise click.UsageError("Expected the file of rules behind `status`")
        _print_status(rules, as_json=as_json)
    elif rules is not None:
        raise click.UsageError(f"Expected one file of rules, `status` or `test`, got {what!r} and {str(rules)!r}")
    else:
        _watch(Path(what), connections, as_json=as_json)


def _watch(path: Path, connections: str | None, *, as_json: bool) -> None:
    from sightglass.alerts.receivers import receivers_here
    from sightglass.client.many.fleet import fleet
    from sightglass.rules.journal import Journal
    from sightglass.rules.rules import read_rules
    from sightglass.rules.watcher import ROUND_S, Watcher, watch

    rules, receivers = read_rules(path), receivers_here()
    journal = Journal(_folder(path))
    watcher = Watcher(
        rules, fleet(connections=connections, hub=hub(), pace_s=ROUND_S), receivers, journal,
        told=_print_json_line if as_json else _print_alert,
    )  # fmt: skip
    kinds = ", ".join(receiver.kind for receiver in receivers)
    where = f"alerts go to {kinds}" if kinds else "alerts are only printed: SIGHTGLASS_ALERT_URL says where they go"
    echo(f"Watching by {len(rules)} rules; {where}. Ctrl-C ends.", err=True)
    watch(watcher)


def _test() -> None:
    from sightglass.alerts.alert import VARIABLE, Alert
    from sightglass.alerts.receivers import receivers_here

    receivers = receivers_here()
    if not receivers:
        raise AlertError(f"Expected addresses in the environment's {VARIABLE}, got none")
    alert = Alert(
        id=f"test-{secrets.token_hex(4)}", title="a test", text="Alerts of Sightglass arrive here.", level="info",
        host=socket.gethostname(), wall_time=time.time(),
    )  # fmt: skip
    problems = []
    for receiver in receivers:
        try:
            receiver.send(alert, now=time.time())
            echo(f"{receiver.kind}: sent")
        except AlertError as error:
            problems.append(f"{receiver.kind}: {error}")
    if problems:
        raise AlertError("\n".join(problems))


def _print_status(path: Path, *, as_json: bool) -> None:
    from sightglass.rules.journal import read_status

    status, alive = read_status(_folder(path))
    if as_json:
        print_json({"watching": alive, **status})
        return
    since, last = (_time(status[key]) for key in ("began", "wall_time"))
    echo(f"Watching since {since}" if alive else f"Nobody watches now; the last watcher did until {last}")
    echo(f"{status['runs']} runs live, {status['sent']} alerts sent, {status['waiting']} waiting")
    if status["problem"]:
        echo(status["problem"])
    head = ("rule", "run", "state", "evaluated", "last value", "told", "problem")
    print_rows(head, map(_cells, status["rows"]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    last = "" if row["last"] is None else row["last"]
    return row["rule"], row["run"], row["state"], f"{row['evaluated']:,}", last, str(row["told"]), row["problem"]


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}{STATE}")


def _print_alert(alert: Alert) -> None:
    echo(f"{_time(alert.wall_time)}  {alert.level}  {alert.subject}  {alert.text}")
    sys.stdout.flush()


def _print_json_line(alert: Alert) -> None:
    import msgspec

    print_json(msgspec.to_builtins(alert))
    sys.stdout.flush()


def _time(wall_time: float) -> str:
    return f"{datetime.datetime.fromtimestamp(wall_time).astimezone():%Y-%m-%d %H:%M:%S}"
