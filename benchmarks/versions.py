"""CPU time that weight versions cost the scheduler, per step and per update.

    python benchmarks/versions.py [--quick] [--json FILE]

A step is a batch of streams that have lived through some updates; the column of the
output is pickled as SGLang does. An update hands tensors to a model that copies them,
with names that its checkpoint lacks, which are watched, and with names that it has.
Runs the landing code without SGLang; needs PyTorch.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import report
import torch

from agentcore_patches.landing.scheduler import weight_versions
from agentcore_patches.landing.scheduler.loaded_tensors import Loaded

STREAMS = 256
TENSORS = 2_000
SHAPE = (256, 256)


class Req(SimpleNamespace):
    """A request of the scheduler."""


def fastest(run: Callable[[], Any], rounds: int) -> float:
    """Return the CPU time of the fastest round in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - began)
    return min(times) / 1e6


def step(versions: int, rounds: int) -> float:
    """Measure a step after a number of versions, none of which is new."""
    reqs = [
        Req(rid=f"{n:032x}", output_ids=[], send_token_offset=0) for n in range(STREAMS)
    ]
    rids = [req.rid for req in reqs]
    for req in reqs:
        req.weight_version, req.weight_versions = None, []
    batch: Any = SimpleNamespace(reqs=reqs, weight_version=None)

    def run() -> None:
        weight_versions.record_batch(batch)
        weight_versions.assign_tokens(batch)
        pickle.dumps(weight_versions.new_spans(rids))

    for version in range(versions):
        weight_versions.set_version(str(version))
        run()
        for req in reqs:
            req.output_ids.append(7)
            req.send_token_offset = len(req.output_ids)
        run()
    return fastest(run, rounds)


class Model:
    """A model that copies every tensor that it is given."""

    def __init__(self) -> None:
        self.parameter = torch.zeros(SHAPE)

    def load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        for _, tensor in weights:
            if self.parameter.size() == tensor.size():
                self.parameter.data.copy_(tensor)


def load(known: bool | None, rounds: int) -> float:
    """Measure an update: unwatched if `known` is None."""
    torch.set_num_threads(1)
    model, tensor = Model(), torch.ones(SHAPE)
    tensors = [(f"layers.{n}.weight", tensor) for n in range(TENSORS)]
    names = {name for name, _ in tensors}

    def run() -> None:
        if known is None:
            model.load_weights(tensors)
        else:
            with Loaded({*names} if known else set()).watching([model]):
                model.load_weights(tensors)

    return fastest(run, rounds)


if __name__ == "__main__":
    options = report.options(__doc__)
    rounds = 50 if options.quick else 500
    rows: list[report.Row] = [
        {"what": f"a step, versions so far: {versions}", "ms": step(versions, rounds)}
        for versions in (1, 20, 60)
    ]
    rows += [
        {"what": f"{TENSORS:,} tensors, {what}", "ms": load(known, rounds // 10)}
        for what, known in (("stock", None), ("known", True), ("watched", False))
    ]
    title = f"Weight versions of {STREAMS} streams, and updates"
    report.show(title, rows, options.json)
