"""Tests of updates that fail on scheduler ranks, which are real processes.

Run like `in_sglang`.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.live.in_sglang import run_tests

N_RANKS = 2
TIMEOUT = 3.0

FINE, RAISES, FAILS, REFUSES, HANGS = "fine", "raises", "fails", "refuses", "hangs"
TAKES_A, TAKES_B, TAKES_NONE = "takes a", "takes b", "takes none"

Expected = tuple[bool, str, str]
"""Success, a pattern of the message, and the version afterwards."""

DONE: Expected = (True, "^$", "new")
FAILED: Expected = (False, "^no such file$", "old")
REFUSED: Expected = (False, "nothing was changed", "old")
NO_B = r"^1 of 2 tensors were loaded: .*none named b\. The weights are mixed now"
NOTHING = r"^0 of 2 tensors were loaded: .*The weights are as before\."


def failed_on(ranks: str, why: str = "KeyError: 'no such group'") -> Expected:
    pattern = rf"on ranks {ranks} of 2: {why}\. .*update all of them again\.$"
    return False, pattern, "old"


# The update on each rank, and the ranks' answers, by case.
CASES: dict[str, tuple[tuple[str, str], tuple[Expected, Expected]]] = {
    "none fails": ((FINE, FINE), (DONE,) * 2),
    "all raise": ((RAISES, RAISES), (failed_on("0, 1"),) * 2),
    "the first raises": ((RAISES, FINE), (failed_on("0"),) * 2),
    "the second raises": ((FINE, RAISES), (failed_on("1"),) * 2),
    "the second says so": ((FINE, FAILS), (failed_on("1", "no such file"),) * 2),
    # An error that SGLang reports on all ranks stays.
    "both say so": ((FAILS, FAILS), (FAILED,) * 2),
    "one of each": ((RAISES, FAILS), (failed_on("0, 1"), FAILED)),
    "the second refuses": ((FINE, REFUSES), (REFUSED,) * 2),
    "again none fails": ((FINE, FINE), (DONE,) * 2),
    "each takes one tensor": ((TAKES_A, TAKES_B), (DONE,) * 2),
    "nobody takes b": ((TAKES_A, TAKES_A), ((False, NO_B, "old"),) * 2),
    "nobody takes any": ((TAKES_NONE, TAKES_NONE), ((False, NOTHING, "old"),) * 2),
}
STAGES = ("a stage of a pipeline", (RAISES, FINE))
HANGING = ("the second hangs", (RAISES, HANGS))  # It leaves a hanging rank behind.


class Model:
    """A model of one rank, which has some of the tensors."""

    def __init__(self, does: str) -> None:
        self.name = does.removeprefix("takes ")

    def load_weights(self, weights: Any) -> None:
        """Copy the values of the rank's own tensor."""
        for name, tensor in weights:
            if name == self.name:
                tensor.clone()


def scheduler(group: Any, does: str) -> Any:
    """Build a scheduler without requests, with the attributes that an update reads."""
    return SimpleNamespace(
        tree_cache=None,
        enable_hicache_storage=False,
        session_controller=SimpleNamespace(sessions={}),
        waiting_queue=[],
        chunked_req=None,
        is_fully_idle=lambda: True,
        _is_no_request=lambda: True,
        device="cpu",
        tp_cpu_group=group,
        tp_worker=SimpleNamespace(model_runner=SimpleNamespace(model=Model(does))),
        draft_worker=None,
        server_args=SimpleNamespace(),
    )


def update(group: Any, does: str, has_barrier: bool) -> Any:
    """Return a rank's answer to an update, or raise its error."""
    import torch.distributed
    from sglang.srt.agentcore.scheduler import weight_updates, weight_versions
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqOutput as Answer

    def change(self: Any, recv_req: Any) -> Any:
        if does == RAISES:
            raise KeyError("no such group")
        if does == HANGS:
            time.sleep(2 * TIMEOUT)
        if does.startswith("takes"):
            tensors = [(name, torch.ones(2)) for name in ("a", "b")]
            made.tp_worker.model_runner.model.load_weights(tensors)
        if has_barrier:
            torch.distributed.barrier(group=group)
        is_fine = does != FAILS
        message = "" if is_fine else "no such file"
        return Answer(success=is_fine, message=message, num_paused_requests=0)

    made = scheduler(group, does)
    made.enable_hicache_storage = does == REFUSES
    arguments = SimpleNamespace(weight_version="old", model_path="/nowhere")
    weight_versions.register(made, arguments)
    weight_versions.weights.names.clear()  # A name that was taken once is known.
    name = "update_with_barrier" if has_barrier else "update"
    request = UpdateWeightFromDiskReqInput(
        model_path="x", flush_cache=False, weight_version="new"
    )
    return getattr(weight_updates, name)(change)(None, request)


# What the second rank runs when the server starts.
UNPATCHED, OTHER, SAME = "no patches", "another version", "the same version"


def start(rank: int, group: Any, second: str) -> tuple[Any, str, str]:
    """Start a rank; return its error's type and text, which are empty if it starts."""
    import torch.distributed
    from sglang.srt.agentcore import release
    from sglang.srt.agentcore.scheduler import weight_versions
    from torch.distributed.distributed_c10d import _get_default_store

    outcome = ("", "", second)
    version = release.VERSION
    try:
        if rank and second == OTHER:
            release.VERSION = "0.1.0"
        if not rank or second != UNPATCHED:
            arguments = SimpleNamespace(weight_version="old", model_path="/nowhere")
            weight_versions.register(scheduler(group, FINE), arguments)
    except Exception as error:
        outcome = type(error).__name__, str(error), second
    release.VERSION = version
    torch.distributed.barrier(group=group)
    _get_default_store().delete_key(f"agentcore-patch {rank}")
    torch.distributed.barrier(group=group)
    return outcome


def run_rank(rank: int, store: str, outcomes: Any) -> None:
    """Run every case on a rank; put its answer and the seconds it took."""
    import torch.distributed
    from sglang.srt.agentcore.scheduler import ranks, weight_versions

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=N_RANKS
    )
    both = torch.distributed.new_group(backend="gloo")
    stages = [torch.distributed.new_group([one], backend="gloo") for one in (0, 1)]
    ranks.TIMEOUT = timedelta(seconds=TIMEOUT)
    ranks._PATIENCE = timedelta(seconds=0.1)
    for second in (UNPATCHED, OTHER, SAME):
        began = time.monotonic()
        result = start(rank, both, second)
        outcomes.put(((second, False, rank), (*result, time.monotonic() - began)))
    cases = [
        (name, does, has_barrier, both)
        for name, (does, _) in CASES.items()
        for has_barrier in (False, True)
    ]
    cases.append((*STAGES, False, stages[rank]))
    cases.append((*HANGING, True, both))
    for name, does, has_barrier, group in cases:
        began = time.monotonic()
        try:
            answer = update(group, does[rank], has_barrier)
            result = answer.success, answer.message, weight_versions.weights.version
        except Exception as error:
            result = type(error).__name__, str(error), weight_versions.weights.version
        outcomes.put(((name, has_barrier, rank), (*result, time.monotonic() - began)))


Outcome = tuple[Any, str, str, float]


@cache
def outcomes() -> dict[tuple[str, bool, int], Outcome]:
    """Return all ranks' answers in all cases, with and without SGLang's barrier."""
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        ranks = [
            spawn.Process(target=run_rank, args=(rank, store, queue), daemon=True)
            for rank in range(N_RANKS)
        ]
        for process in ranks:
            process.start()
        found = [queue.get(timeout=240) for _ in range((2 * len(CASES) + 5) * N_RANKS)]
        for process in ranks:
            process.join(240)
    return dict(found)


def outcome(name: str, *, has_barrier: bool) -> list[Outcome]:
    """Return the answers of the ranks in a case, in rank order."""
    return [outcomes()[name, has_barrier, rank] for rank in range(N_RANKS)]


def test_a_server_whose_ranks_run_other_patches_does_not_start() -> None:
    first, _ = outcome(UNPATCHED, has_barrier=False)
    assert first[0] == "RuntimeError"
    assert "no patches were reported by ranks 1 of 2. " in first[1]
    # A store in a file, unlike SGLang's, waits up to a second longer each time.
    assert TIMEOUT <= first[3] < 3 * TIMEOUT
    ours, theirs = outcome(OTHER, has_barrier=False)
    assert ours[0] == theirs[0] == "RuntimeError"
    assert "rank 1 runs agentcore-patch 0.1.0: " in ours[1]
    assert "run agentcore-patch 0.1.0: " in theirs[1] and "rank 0 runs " in theirs[1]
    assert "`agentcore-patch apply`, in the same version, on every node" in ours[1]
    for error, _, _, seconds in outcome(SAME, has_barrier=False):
        assert error == "" and seconds < TIMEOUT


def assert_case(name: str) -> None:
    for has_barrier in (False, True):
        answers = outcome(name, has_barrier=has_barrier)
        for answer, expected in zip(answers, CASES[name][1], strict=True):
            success, message, version, seconds = answer
            assert (success, version) == (expected[0], expected[2]), answers
            assert re.search(expected[1], message, re.DOTALL), answers
            assert success or seconds < TIMEOUT, answers


MORE_TESTS = {name: partial(assert_case, name) for name in CASES}


def test_stages_of_a_pipeline_do_not_wait_for_each_other() -> None:
    first, second = outcome(STAGES[0], has_barrier=False)
    assert first[0] == "KeyError"
    assert second[0] is True
    assert first[3] < TIMEOUT


def test_a_hanging_rank_times_out() -> None:
    first, _ = outcome(HANGING[0], has_barrier=True)
    assert first[0] == "RuntimeError"
    assert TIMEOUT <= first[3] < 1.5 * TIMEOUT


if __name__ == "__main__":
    run_tests(globals())
