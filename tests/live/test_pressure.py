"""Trainers disturb a server while it answers: every answer finishes and is exact.

Many concurrent requests are disturbed several times while they run. Each answer must
equal that of a quiet run, or be a prefix of it with finish reason abort. The server
must hold none of the requests afterwards.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from agentcore_verify import client, cpu
from agentcore_verify.client import Answer
from agentcore_verify.server import Server
from tests.helpers import asking
from tests.helpers.asking import CASES, LOGPROB_NOISE, Case, ask
from tests.helpers.endpoints import send
from tests.helpers.servers import Launch, Trees, held, held_requests
from tests.helpers.waiting import wait_until

WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    # Every third step retracts a request, while the scheduler overlaps its steps, as
    # on a GPU; long prompts are prefilled in pieces.
    # In rare cases, SGLang's own check of an idle KV cache then crashes the server.
    "retracted": (
        ("--chunked-prefill-size", "64"),
        {"SGLANG_TEST_RETRACT": "1", "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0"},
    ),
    # The KV cache holds about six of the requests at their full length.
    "small-cache": (("--stream-output", "--max-total-tokens", "1600"), {}),
}

LENGTH = 120
CROWD = [
    Case("long", options={"max_tokens": LENGTH}),
    CASES["emoji"],
    Case("long", options={"max_tokens": LENGTH, "top_logprobs": 2}),
    Case("two_tools", tools=True),
]
N_EACH = 4
N_CROWD = N_EACH * len(CROWD)

Disturb = Callable[[Server, list[str]], None]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat an answer as hanging if it is silent for a minute."""
    monkeypatch.setattr(client, "post", partial(client.post, timeout=60))


@pytest.fixture(scope="module", params=WAYS)
def pressed(
    request: pytest.FixtureRequest, trees: Trees, launch: Launch
) -> Iterator[Server]:
    """A patched server that is short of memory, or acts like one."""
    args, env = WAYS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "retracted":
            serial = "--disable-overlap-schedule"
            patch.setattr(cpu, "ARGS", tuple(a for a in cpu.ARGS if a != serial))
        with launch(trees.patched, *args, env=env) as running:
            yield running


@pytest.fixture(scope="module")
def quiet(pressed: Server) -> list[Answer]:
    """Undisturbed responses to each case of the crowd."""
    return [ask(pressed, case) for case in CROWD]


def post(server: Server, path: str, **body: Any) -> None:
    send(server, path, **body).raise_for_status()


@contextlib.contextmanager
def crowd(server: Server) -> Iterator[dict[str, Future[Answer]]]:
    """Send each case, streaming and not, all at once; return the answers by request ID.

    No ID is used twice: SGLang aborts each stream's ID again, 2 s after its end.
    """
    once = uuid.uuid4().hex
    names = [
        (f"{once}-{i}-{j}", case, bool(j % 2))
        for j in range(N_EACH)
        for i, case in enumerate(CROWD)
    ]
    with ThreadPoolExecutor(len(names)) as pool:
        yield {
            rid: pool.submit(ask, server, case, stream=stream, rid=rid)
            for rid, case, stream in names
        }


def assert_exact(answer: Answer, quiet: Answer) -> bool:
    """True for a complete answer; fail unless an aborted one is an exact prefix."""
    asking.assert_whole(answer)
    [choice] = answer.completions
    if choice.finish_reason != "abort":
        asking.assert_equal(answer, quiet)
        return True
    ids = choice.token_ids or ()
    assert answer.prompt_token_ids == quiet.prompt_token_ids
    assert (quiet.completions[0].token_ids or ())[: len(ids)] == ids
    return False


def paused(*modes: str, update: bool = False) -> Disturb:
    """Pause in these modes, one after the other, maybe load the weights, continue."""

    def disturb(server: Server, _: list[str]) -> None:
        for mode in modes:
            post(server, "/pause_generation", mode=mode)
            time.sleep(0.2)
        if update:
            body = {"model_path": str(server.options.model), "flush_cache": False}
            post(server, "/update_weights_from_disk", **body)
        post(server, "/continue_generation")

    return disturb


def abort_all(server: Server, _: list[str]) -> None:
    post(server, "/abort_request", abort_all=True)


ABORTED = [0, 4, 10, 14]
"""Long answers of each kind: some are running, some may be waiting."""


def abort_some(server: Server, rids: list[str]) -> None:
    for position in ABORTED:
        post(server, "/abort_request", rid=rids[position])


# What disturbs a crowd, how often, and how many of its answers are complete.
DISTURBED: dict[str, tuple[Disturb, int, int]] = {
    "nothing": (lambda *_: None, 3, N_CROWD),
    "in_place": (paused("in_place"), 3, N_CROWD),
    "retract": (paused("retract"), 3, N_CROWD),
    "in_place+retract": (paused("in_place", "retract"), 3, N_CROWD),
    "abort": (paused("abort"), 1, 0),
    "in_place+abort": (paused("in_place", "abort"), 1, 0),
    "retract+abort": (paused("retract", "abort"), 1, 0),
    "an abort of all": (abort_all, 1, 0),
    "an abort of some": (abort_some, 2, N_CROWD - len(ABORTED)),
    "the same weights": (paused("in_place", update=True), 2, N_CROWD),
}


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize(
    ("disturb", "rounds", "n_whole"), DISTURBED.values(), ids=DISTURBED
)
def test_a_disturbed_crowd_gets_exact_answers(
    pressed: Server, quiet: list[Answer], disturb: Disturb, rounds: int, n_whole: int
) -> None:
    with crowd(pressed) as asked:
        running = asked.values()
        wait_until(
            lambda: len(held(pressed)) == N_CROWD or any(one.done() for one in running)
        )
        for _ in range(rounds):
            time.sleep(0.4)
            disturb(pressed, [*asked])
    wholes = [
        assert_exact(answer.result(), quiet[int(rid.split("-")[1])])
        for rid, answer in asked.items()
    ]
    assert sum(wholes) == n_whole
    assert held_requests(pressed) == []


def prompt_logprobs(server: Server, prompt: list[int]) -> list[float | None]:
    """Return a prompt's logprobs, requested as from a teacher model."""
    options = {"max_new_tokens": 1, "temperature": 0}
    asked = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}
    answer = send(
        server, "/generate", input_ids=prompt, sampling_params=options, **asked
    )
    answer.raise_for_status()
    rows = answer.json()["meta_info"]["input_token_logprobs"]
    assert [row[1] for row in rows] == prompt
    return [row[0] for row in rows]


def test_a_prompt_is_scored_by_its_own_logprobs(pressed: Server) -> None:
    prompts = [[5 + i, *range(30, 60, 1 + i)] for i in range(8)]
    alone = [prompt_logprobs(pressed, prompt) for prompt in prompts]

    with crowd(pressed) as asked, ThreadPoolExecutor(len(prompts)) as pool:
        for _ in range(4):
            beside = pool.map(partial(prompt_logprobs, pressed), prompts)
            for mine, wanted in zip(beside, alone, strict=True):
                assert mine[1:] == pytest.approx(wanted[1:], abs=LOGPROB_NOISE)
    assert all(answer.result().errors == () for answer in asked.values())
