"""Receivers: addresses, mail and HTTP by apprise to real servers, and programs."""

from __future__ import annotations

import email
import json
import logging
import stat
import sys
import warnings

import msgspec
import numpy as np
import psutil
import pytest
from tests.waiting import wait_until

from sightglass.alerts import receivers
from sightglass.alerts.alert import VARIABLE, Alert
from sightglass.alerts.receivers import Program, Service, receivers_of
from sightglass.core.errors import AlertError, MissingExtraError

SECRET = "swordfish"
NASTY = "$(touch hacked); `touch hacked` && touch hacked # \u202e"


@pytest.fixture
def one():
    return Alert.of(
        "ab-1", "loss\r\nexplodes", NASTY, level="error", run="mnist\nalert none", run_id="ab", host="node7",
        wall_time=1_000.0, step=1_200.0,
    )  # fmt: skip


def test_a_mail_says_what_happened_where_and_when(mails, one):
    (receiver,) = receivers_of(f"mailto://127.0.0.1:{mails.port}?from=run@here.org&to=me@here.org&mode=insecure")
    receiver.check()
    receiver.send(one, now=1_003.0)
    (mail,) = mails.got
    subject = str(email.header.make_header(email.header.decode_header(mail["Subject"])))
    assert subject == "mnist alert none: loss explodes"
    text = mail.get_payload(decode=True).decode()
    assert "run mnist alert none (ab) on node7" in text
    assert "step 1,200" in text
    assert "alert ab-1" in text
    assert "late" not in text
    assert "\\u202e" in text


def test_an_alert_that_comes_late_says_how_late(mails, one):
    (receiver,) = receivers_of(f"mailto://127.0.0.1:{mails.port}?from=run@here.org&to=me@here.org&mode=insecure")
    receiver.send(one, now=1_000.0 + 7_500)
    assert "2 h 5 min late" in mails.got[0].get_payload(decode=True).decode()


def test_a_webhook_gets_it(posts, one):
    (receiver,) = receivers_of(f"json://127.0.0.1:{posts.server_port}/hook")
    receiver.send(one, now=1_000.0)
    ((path, body),) = posts.got
    assert path == "/hook"
    assert body["title"] == "mnist alert none: loss explodes"
    assert body["type"] == "failure"


def test_what_a_receiver_refuses_raises_without_its_address(posts, one, caplog):
    caplog.set_level(logging.DEBUG)
    posts.status = 500
    receiver = Service(f"json://user:{SECRET}@127.0.0.1:{posts.server_port}/{SECRET}", "json")
    with pytest.raises(AlertError, match="json") as refused:
        receiver.send(one, now=1_000.0)
    assert posts.n_refused
    assert SECRET not in str(refused.value)
    assert SECRET not in caplog.text
    assert SECRET not in repr(receiver)
    logging.getLogger("apprise").warning("the program's own use of apprise")
    assert "the program's own use" in caplog.text


@pytest.mark.parametrize("address", [f"nosuchservice://{SECRET}", f"mailto://{SECRET}", f"json://{SECRET}:x:y"])
def test_an_address_that_apprise_does_not_know_is_refused_without_it(address):
    (receiver,) = receivers_of(address)
    with pytest.raises(AlertError) as refused:
        receiver.check()
    assert SECRET not in str(refused.value)


def test_several_addresses_stand_in_lines():
    found = receivers_of("\n  json://a\n\nexec:notify --to 'a b'\n mailto://b\n")
    assert [one.kind for one in found] == ["json", "exec", "mailto"]


@pytest.mark.parametrize(
    "address", [SECRET, "exec:", f"json:{SECRET}", f"{SECRET}:foo", f"json://a\n{SECRET} b:c", f"exec:'{SECRET}"]
)
def test_what_is_no_address_is_refused_without_it(address):
    with pytest.raises(AlertError, match=r"^(?!.*swordfish)"):
        receivers_of(address)


def test_without_apprise_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(MissingExtraError) as missing:
        Service("json://a", "json").check()
    assert missing.value.extra == "alerts"


def script(folder, body):
    path = folder / "a program"
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_program_gets_json_and_no_shell(tmp_path, monkeypatch, one):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, f"json://{SECRET}")
    path = script(
        tmp_path, f"open('got', 'w').write(sys.stdin.read() + str(sys.argv[1:]) + str({VARIABLE!r} in os.environ))"
    )
    program = Program(f"'{path}' --to 'a; b'")
    program.check()
    program.send(one, now=0.0)
    got = (tmp_path / "got").read_text()
    text, _, rest = got.partition("}")
    assert json.loads(text + "}")["text"] == NASTY
    assert rest == "['--to', 'a; b']False"
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("body", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_fails_has_not_taken_it(tmp_path, one, body):
    path = script(tmp_path, body)
    with pytest.raises(AlertError):
        Program(f"'{path}'").send(one, now=0.0)


def test_a_program_that_is_not_there_is_found_out_at_once(tmp_path, one):
    program = Program(f"{tmp_path}/nothing")
    with pytest.raises(AlertError):
        program.check()
    with pytest.raises(AlertError):
        program.send(one, now=0.0)


def test_a_program_that_reads_nothing_has_taken_it(tmp_path, one):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Program(f"'{script(tmp_path, '')}'").send(one, now=0.0)


@pytest.mark.parametrize("step", [10**400, float("nan"), None, np.int64(3), np.float32(3)])
@pytest.mark.parametrize("wall_time", [float("inf"), -1e30, 1e30, 1_000.0])
def test_whatever_a_program_says_can_be_worded(step, wall_time):
    odd = Alert.of(
        "1", "\udcff\x1b[2J", "\ud800 text", level="info", run="a\u2028b", wall_time=wall_time, step=step
    )  # fmt: skip
    for words in (odd.subject, odd.body(1_000.0)):
        assert words.encode()
        assert "\x1b" not in words
    assert json.loads(msgspec.json.encode(odd))["step"] in (3, None)


def test_what_a_program_started_ends_with_it(tmp_path, one, monkeypatch):
    monkeypatch.setattr(receivers, "PROGRAM_S", 0.5)
    path = script(tmp_path, "import subprocess; print(1); child = subprocess.Popen(['sleep', '1000']);"
                            f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); child.wait()")  # fmt: skip
    with pytest.raises(AlertError):
        Program(f"'{path}'").send(one, now=0.0)
    if (tmp_path / "pid").exists():  # on a busy machine it is ended before
        pid = int((tmp_path / "pid").read_text())
        wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "its end")
