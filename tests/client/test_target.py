"""Which run replaces one that died: by what lived beside what, never by the clock."""

from __future__ import annotations

import msgspec
import pytest

from sightglass.client.live_runs import RegisteredRun, route_to
from sightglass.protocol import discovery

pytestmark = pytest.mark.smoke


def entry(id: str, *beside: str, name: str = "job", started: float = 1e9) -> discovery.LiveRun:
    return discovery.LiveRun(name=name, id=id, pid=1, host="h", started=started, endpoint="ipc://x", beside=beside)


LOST = entry("lost", "older")


@pytest.mark.parametrize("started", [1e9 - 3600, 1e9 + 3600])
@pytest.mark.parametrize(
    ("live", "found"),
    [
        ([], "awaited"),
        ([entry("older")], "awaited"),
        ([entry("younger", "lost")], "awaited"),
        ([entry("other", name="other")], "awaited"),
        ([entry("next")], "next"),
        ([entry("older"), entry("younger", "lost", "older"), entry("next", "older", "younger")], "next"),
    ],
)
def test_a_run_is_replaced_by_one_that_did_not_live_beside_it(live, found, started, monkeypatch):
    live = [msgspec.structs.replace(one, started=started) for one in live]
    monkeypatch.setattr(discovery, "entries", lambda: live)
    again = RegisteredRun(by_name=True).find_again(route_to(LOST))
    assert again == found if isinstance(again, str) else again.id == found
    assert RegisteredRun(by_name=False).find_again(route_to(LOST)) == "died"


def test_a_run_says_what_lived_beside_it(begin):
    first, other = begin("job"), begin("other")
    second = begin("job")
    beside = {one.id: one.beside for one in discovery.entries()}
    assert beside == {first.id: (), other.id: (), second.id: (first.id,)}
