"""Weight versions without SGLang: the landing code, with stand-ins for requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import http
from agentcore_patches.landing.scheduler import (
    ranks,
    requests,
    weight_updates,
    weight_versions,
)
from agentcore_patches.landing.scheduler.weight_versions import _Weights


@pytest.fixture(autouse=True)
def weights(monkeypatch: pytest.MonkeyPatch) -> _Weights:
    fresh = _Weights()
    for module in (weight_versions, weight_updates):
        monkeypatch.setattr(module, "weights", fresh)
    monkeypatch.setattr(ranks, "check", lambda: None)
    scheduler: Any = None
    arguments: Any = SimpleNamespace(weight_version="a", model_path="/nowhere")
    weight_versions.register(scheduler, arguments)
    return fresh


class Req(SimpleNamespace):
    """A request of the scheduler; unlike a SimpleNamespace, it has weak references."""


def request(rid: str = "one", **more: Any) -> Any:
    return Req(
        rid=rid,
        output_ids=[],
        weight_version=None,
        weight_versions=[],
        weights_namespace="",
        extra_key=None,
        **more,
    )


def run(req: Any, batch: Any, n_tokens: int = 1) -> None:
    """Handle the result of a batch that samples tokens of a request."""
    batch.reqs = [req]
    weight_versions.assign_tokens(batch)
    req.output_ids += [7] * n_tokens


def sent(req: Any, n_tokens: int) -> Any:
    """Return what an output with the first tokens of a request says of it."""
    req.send_token_offset = n_tokens
    column = weight_versions.new_spans([req.rid])
    return column and column[0]


def launch() -> Any:
    batch: Any = SimpleNamespace(weight_version=None)
    weight_versions.record_batch(batch)
    return batch


@pytest.mark.parametrize(
    ("results", "n_sent", "spans"),
    [
        # A result without sampled tokens has no span.
        ([("a", 0)], 0, None),
        ([("a", 0), ("b", 1), ("c", 0), ("d", 1)], 2, [["b", 0, 1], ["d", 1, 2]]),
        # Tokens after a stop string are not sent.
        ([("a", 3), ("b", 2)], 3, [["a", 0, 3]]),
        ([("a", 3), ("b", 2)], 4, [["a", 0, 3], ["b", 3, 4]]),
    ],
)
def test_sent_tokens_have_the_versions_of_their_results(
    results: list[tuple[str, int]], n_sent: int, spans: Any
) -> None:
    req = request()
    for version, n_tokens in results:
        weight_versions.set_version(version)
        run(req, launch(), n_tokens)
    assert sent(req, n_sent) == spans


def test_an_output_has_only_new_spans_of_its_own_requests() -> None:
    one, other = request("one"), request("other", send_token_offset=3)
    run(one, launch(), n_tokens=3)
    run(other, launch(), n_tokens=3)
    assert sent(one, 2) == [["a", 0, 2]]
    run(one, launch())
    assert sent(one, 4) is None
    assert weight_versions.new_spans(["one", "other"]) == [None, [["a", 0, 3]]]
    weight_versions.set_version("b")
    run(one, launch())
    assert sent(one, 5) == [["a", 0, 4], ["b", 4, 5]]


def test_a_request_that_is_gone_or_in_a_beam_search_has_no_versions(
    weights: _Weights,
) -> None:
    run(request(), launch())
    assert not weights.unsent
    req = request(beam_group=object())
    run(req, launch())
    assert sent(req, 1) is None


def test_versions_of_lost_tokens_are_dropped() -> None:
    req = request()
    run(req, launch())
    weight_versions.set_cache_key(req)
    assert sent(req, 1) == [["a", 0, 1]]
    req.output_ids = []
    weight_versions.set_cache_key(req)
    run(req, launch(), n_tokens=2)
    assert sent(req, 2) == [["a", 0, 2]]


def test_the_cache_key_separates_request_and_adapter(weights: _Weights) -> None:
    weights.n_updates = 1
    one, other = request(), request()
    one.extra_key, other.extra_key = "salt", "other"
    for _ in range(2):
        for req in (one, other):
            weight_versions.set_cache_key(req)
    assert one.extra_key != other.extra_key
    assert one.extra_key.split("\0")[1:] == ["salt"]
    # SGLang may add the size of an elastic expert group to the key.
    one.extra_key += " ep=4"
    weights.n_updates = 2
    weight_versions.set_cache_key(one)
    assert one.extra_key.split("\0")[1:] == ["salt ep=4"]


def test_an_update_in_several_requests_counts_at_its_end(
    weights: _Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_updates, "_clear_image_cache", lambda: None)
    end = weight_updates.end_update(lambda manager, recv_req: recv_req)
    assert end(None, "answer") == "answer"
    assert weights.n_updates == 1


def test_no_storage_is_attached_after_an_update(
    weights: _Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        requests, "build_output", lambda recv_req, **said: SimpleNamespace(**said)
    )
    attach = weight_updates.attach_storage(lambda scheduler, recv_req: "attached")
    assert attach(None, None) == "attached"
    weights.n_updates = 1
    answer = attach(None, None)
    assert not answer.success
    assert "older weights" in answer.message


@pytest.mark.parametrize(
    ("answer", "version", "named"),
    [
        (Req(choices=[], metadata=None), "b", "b"),
        (Req(choices=[], metadata=None), "default", None),  # Nobody named the weights.
        (Req(), "b", None),  # An error has no choices.
    ],
)
def test_an_answer_has_the_name_of_its_weights_at_the_top(
    answer: Any, version: str, named: str | None
) -> None:
    build: Any = http.weight_versions.add_to_response(lambda *args: answer)
    asked = SimpleNamespace(return_token_ids=True, return_weight_versions=None)
    made = build(None, asked, [{"meta_info": {"weight_version": version}}])
    assert getattr(made, "weight_version", None) == named
