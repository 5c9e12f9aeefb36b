"""Every check of `verify` passes on a patched server in each mode, and every one can fail.

What a check compares needs no other live test. A proxy between `verify` and a real patched server plants one defect at a time. The
check for it must find and name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify import checks
from agentcore_verify.client import Json
from agentcore_verify.contract import LEVELS, RULES, Ledger
from agentcore_verify.results import Outcome
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.waiting import wait_until
from tests.live.defects import PLANTED, ChatStream, Planted
from tests.live.defects.planting import CHAT, with_ids
from tests.live.defects.special_requests import VllmEndpointsMissing
from tests.live.proxy import Defect, Proxy

# The checks need a server with a reasoning parser.
on_a_server = pytest.mark.parametrize("mode", ["reasoning"], indirect=True)


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def correct(proxy: Proxy, sglang_python: Path) -> Subject:
    """A proxy without a defect, which remembers non-streaming responses."""
    return Subject(proxy.url, python=sglang_python, launched=True)


def test_every_check_passes_in_every_mode(
    server: Server, mode: str, release: str, sglang_python: Path
) -> None:
    expected = dict.fromkeys(checks.NAMES, "passed") | {"images": "skipped"}
    if mode != "reasoning":
        expected["reasoning"] = "not exercised"
    if mode.startswith("two-workers") and is_between(release, "", "0.5.11"):
        expected |= dict.fromkeys(("pauses", "weight-versions"), "skipped")
    subject = Subject(server.base_url, python=sglang_python, launched=True)
    results = [checks.get(name).run(subject) for name in checks.NAMES]
    assert {
        result.name: f"{result.outcome.value}: {result.message}"
        for result in results
        if result.outcome.value != expected[result.name]
    } == {}


# Each defect, and its number among those of its check.
NUMBERED = [
    pytest.param(number, planted, id=planted.name)
    for name in checks.NAMES
    for number, planted in enumerate(each for each in PLANTED if each.check == name)
]


@on_a_server
@pytest.mark.parametrize(("nth_of_check", "planted"), NUMBERED)
def test_a_planted_defect_is_found_and_named(
    proxy: Proxy,
    correct: Subject,
    sglang_python: Path,
    nth_of_check: int,
    planted: Planted,
) -> None:
    proxy.plant(planted.make())
    subject = correct  # For defects that leave non-streaming responses unchanged.
    if not isinstance(proxy.defect, ChatStream):
        subject = Subject(proxy.url, python=sglang_python, launched=True)
    subject.ledger = Ledger()
    subject.expect_logprobs = "raw" if planted.check == "logprob-mode" else None
    result = checks.get(planted.check).run(subject)
    assert result.outcome is planted.outcome, result
    assert planted.word in result.message
    if planted.rule:
        broken = {
            rule.number
            for rule in subject.ledger.results(LEVELS)
            if rule.outcome is Outcome.FAILED
        }
        assert planted.rule in broken
    if "differ from those" in planted.word:
        assert result.difference is not None
        assert any(not row.same for row in result.difference.rows)


class LateAbort(ChatStream):
    """Holds back the first abort until its stream is longer than the known answer."""

    n_ids = 0
    late = True

    def request(self, path: str, body: Json) -> Json:
        if path == "/abort_request" and self.late:
            self.late = False
            wait_until(lambda: self.n_ids > 300)
        return body

    def chat(self, body: Json, events: Iterator[Json]) -> Iterator[Json]:
        self.n_ids = 0
        for _, event, ids in with_ids(events):
            self.n_ids += len(ids)
            yield event


@on_a_server
def test_an_answer_aborted_too_late_is_compared_with_a_longer_one(
    proxy: Proxy, correct: Subject
) -> None:
    late = LateAbort()
    proxy.plant(late)
    result = checks.get("interruption").run(correct)
    assert not late.late
    assert result.outcome is Outcome.PASSED
    n_aborted = int(result.message.split()[-2])
    assert n_aborted > len(correct.reference("long").ids())


class Remembers(Defect):
    """A server of another kind, which continues from the tokens of its last answer."""

    last: list[int]

    def request(self, path: str, body: Json) -> Json:
        if path == CHAT and len(body["messages"]) > 1:
            body = {**body, "required_prefix_token_ids": self.last}
        return body

    def whole(self, path: str, body: Json, response: Any) -> None:
        if path == CHAT:
            self.last = (
                response["prompt_token_ids"] + response["choices"][0]["token_ids"]
            )


class RemembersGreedy(Remembers):
    """It neither samples nor cuts: its text, tokenized again, has its tokens."""

    def request(self, path: str, body: Json) -> Json:
        if path == CHAT and body["max_tokens"] > 1:
            body = {**body, "temperature": 0, "max_tokens": 400}
        return super().request(path, body)


@on_a_server
@pytest.mark.parametrize(
    ("defect", "outcome", "word"),
    [
        (Defect, Outcome.FAILED, "renders the text of the first again"),
        (Remembers, Outcome.PASSED, "not by chance"),
        (RemembersGreedy, Outcome.NOT_EXERCISED, "tokenized again, has its tokens"),
    ],
)
def test_a_second_turn_of_messages_is_judged_by_turns_that_tell(
    proxy: Proxy, defect: type[Defect], outcome: Outcome, word: str
) -> None:
    proxy.plant(defect())
    subject = Subject(proxy.url)
    subject.is_patched = False
    result = checks.get("prefix").run(subject)
    assert (result.outcome, word in result.message) == (outcome, True), result


@on_a_server
def test_vllm_fields_that_a_router_hides_are_reported(
    proxy: Proxy, sglang_python: Path
) -> None:
    proxy.plant(VllmEndpointsMissing())
    result = checks.get("vllm-api").run(Subject(proxy.url, python=sglang_python))
    assert result.outcome is Outcome.PASSED, result
    assert result.message.endswith("A router hides /is_paused, /sleep"), result


def test_every_rule_has_a_defect_that_breaks_it() -> None:
    broken = {planted.rule for planted in PLANTED} - {0}
    assert broken == {rule.number for rule in RULES}


def test_every_check_has_a_defect_that_it_finds() -> None:
    # The model accepts no images; `test_images` has that check's defects.
    assert {planted.check for planted in PLANTED} | {"images"} == {*checks.NAMES}
