"""What is asked of an update that fails on ranks of a scheduler, which are real processes.

Run as `in_sglang` is.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.live.in_sglang import run_tests

N_RANKS = 2


def scheduler() -> Any:
    """What an update asks of a scheduler without requests."""
    return SimpleNamespace(
        tree_cache=None,
        enable_hicache_storage=False,
        session_controller=SimpleNamespace(sessions={}),
        waiting_queue=[],
        chunked_req=None,
        is_fully_idle=lambda: True,
        _is_no_request=lambda: True,
        device="cpu",
    )


def run_rank(rank: int, store: str, answers: Any) -> None:
    """Two updates of a rank: one that fails on all, one that fails on the first."""
    import torch.distributed
    from sglang.srt.agentcore import weight_versions
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqOutput as Answer

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=N_RANKS
    )
    weight_versions._RANKS_TIMEOUT = 2.0
    weight_versions.start(scheduler(), "default")
    for fails in (True, rank == 0):

        def change(self: Any, recv_req: Any, fails: bool = fails) -> Any:
            if fails:
                raise KeyError("no such group")
            return Answer(success=True, message="", num_paused_requests=0)

        request = UpdateWeightFromDiskReqInput(model_path="x", flush_cache=False)
        try:
            answer = weight_versions.update(change)(None, request)
            answers.put((rank, answer.success))
        except KeyError:
            answers.put((rank, "raises"))
    torch.distributed.barrier()


def test_an_update_that_fails_on_some_ranks_alone_raises() -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        ranks = [
            spawn.Process(target=run_rank, args=(rank, store, answers))
            for rank in range(N_RANKS)
        ]
        for process in ranks:
            process.start()
        found = [answers.get(timeout=240) for _ in range(2 * N_RANKS)]
        for process in ranks:
            process.join(240)
    assert [answer for rank, answer in found if rank == 0] == [False, "raises"]
    assert [answer for rank, answer in found if rank == 1] == [False, True]


if __name__ == "__main__":
    run_tests(globals())
