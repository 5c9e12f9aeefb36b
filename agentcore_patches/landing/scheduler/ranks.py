"""Agreement among the ranks of a server, which must never differ in their weights."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from .. import release

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler
    from torch.distributed import Work

logger = logging.getLogger(__name__)

# Time that a rank whose update failed waits for the others, one of which may hang. The
# server then crashes. SGLang's watchdog has the same default.
TIMEOUT = timedelta(seconds=300)

# Time after which the log names the ranks that a starting rank still waits for.
_PATIENCE = timedelta(seconds=10)


def check() -> None:
    """Make sure that all ranks run the same patches, or the first update would hang.

    An unpatched rank takes part in no exchange, so each rank leaves a note in the store
    of the process group and waits for those of the others.
    """
    from torch import distributed
    from torch.distributed.distributed_c10d import _get_default_store

    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    store, n_ranks = _get_default_store(), distributed.get_world_size()
    names = [f"agentcore-patch {rank}" for rank in range(n_ranks)]
    version = release.VERSION.partition("+")[0]  # Commits may differ.
    own = f"agentcore-patch {version}: {', '.join(release.INSTALLED)}"
    store.set(names[distributed.get_rank()], own)
    remedy = (
        "Run `agentcore-patch apply`, in the same version, on every node, with the "
        "same extras"
    )
    for timeout in (_PATIENCE, TIMEOUT):
        try:
            store.wait(names, timeout)
            break
        except RuntimeError:
            missing = [
                rank for rank in range(n_ranks) if not store.check([names[rank]])
            ]
            problem = (
                f"Not all ranks of this server run {own}: no patches were reported by "
                f"ranks {', '.join(map(str, missing))} of {n_ranks}. {remedy}."
            )
            logger.warning(problem)
    else:
        raise RuntimeError(problem)
    for rank, name in enumerate(names):
        if (other := store.get(name).decode()) != own:
            raise RuntimeError(
                f"Not all ranks of this server run {own}: rank {rank} runs {other}. "
                f"{remedy}."
            )


def are_in_step(scheduler: Scheduler) -> bool:
    """True if all ranks of the server update their weights at the same time.

    A pipeline stage gets a request only after the previous stage has handled it.
    """
    from torch import distributed

    n_ranks = distributed.get_world_size(scheduler.tp_cpu_group)
    # From 0.5.11 on, this flag makes each data parallel group update by itself.
    flag = "enable_dp_attention_local_control_broadcast"
    is_local = getattr(scheduler.server_args, flag, False)
    return n_ranks == distributed.get_world_size() and not is_local


def exchange(
    scheduler: Scheduler, problem: str, timeout: timedelta | None = None
) -> list[str]:
    """Exchange problems with the other ranks; return each rank's, empty for none.

    Args:
        timeout: time to wait for the other ranks; None for SGLang's own limit.

    Raises:
        RuntimeError: a rank crashed or did not answer in time.
    """
    import torch
    from torch import distributed

    group = scheduler.tp_cpu_group
    n_ranks = distributed.get_world_size(group)
    if n_ranks == 1 or not are_in_step(scheduler):
        return [problem]
    n_problems = torch.tensor([bool(problem)], dtype=torch.int64)
    work = distributed.all_reduce(n_problems, group=group, async_op=True)
    _wait(work, timeout)
    problems = [""] * n_ranks
    if n_problems.item():
        distributed.all_gather_object(problems, problem, group=group)
    return problems


def enter_barrier(scheduler: Scheduler) -> None:
    """Enter the barrier where the ranks whose update succeeded wait."""
    from torch import distributed

    work = distributed.barrier(group=scheduler.tp_cpu_group, async_op=True)
    _wait(work, TIMEOUT)


def _wait(work: Work, timeout: timedelta | None) -> None:
    """Wait for the other ranks."""
    if timeout is None:
        work.wait()
    else:
        work.wait(timeout)
