"""Tensors of weight updates that models take, skip, keep or lack."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.landing.scheduler import loaded_tensors
from agentcore_patches.landing.scheduler.loaded_tensors import Loaded

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

Load = Callable[[dict[str, Any], Iterable[tuple[str, Any]]], None]


def each(use: Callable[[dict[str, Any], str, Any], object]) -> Load:
    """Return a loader that uses each tensor of a parameter."""

    def load(parameters: dict[str, Any], weights: Iterable[tuple[str, Any]]) -> None:
        for name, tensor in weights:
            if name in parameters:
                use(parameters, name, tensor)

    return load


def fuse(parameters: dict[str, Any], weights: Iterable[tuple[str, Any]]) -> None:
    torch.cat([tensor for name, tensor in weights if name in parameters])


def in_a_thread(parameters: dict[str, Any], name: str, tensor: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(parameters[name].data.copy_, tensor).result()


copy = each(lambda parameters, name, tensor: parameters[name].data.copy_(tensor))
WAYS = {
    "copy": copy,
    "fuse": fuse,
    "in a thread": each(in_a_thread),
    "keep": each(dict.__setitem__),
    "make a parameter": each(
        lambda parameters, name, tensor: parameters.update(
            {name: torch.nn.Parameter(tensor)}
        )
    ),
    "as numbers": each(
        lambda parameters, name, tensor: parameters[name].data.fill_(
            tensor[0, 0].item()
        )
    ),
}


class Model:
    """A model with the parameters a and b."""

    def __init__(self, load: Load) -> None:
        self.parameters = {name: torch.zeros(2, 2) for name in "ab"}
        self._load = load

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        self._load(self.parameters, weights)


def update(model: Model, *names: str, known: str = "", stream: bool = False) -> Loaded:
    """Load tensors of ones into a model."""
    loaded = Loaded({*known.split()})
    tensors = [(name, torch.ones(2, 2)) for name in names]
    with loaded.watching([model]):
        model.load_weights(iter(tensors) if stream else tensors)
    assert all(type(tensor) is torch.Tensor for _, tensor in tensors)
    return loaded


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("load", WAYS.values(), ids=WAYS)
def test_a_tensor_that_a_model_uses_in_any_way_is_taken(
    load: Load, stream: bool
) -> None:
    model = Model(load)
    loaded = update(model, "a", "b", "other", stream=stream)
    assert loaded.untaken() == ["other"]
    assert [*loaded.names] == ["a", "b", "other"]
    for tensor in model.parameters.values():
        assert type(tensor) in (torch.Tensor, torch.nn.Parameter)
        assert load is fuse or tensor[0, 0] == 1
    assert "load_weights" not in vars(model)


def test_a_look_at_the_shape_takes_nothing() -> None:
    def look(parameters: Any, weights: Iterable[tuple[str, Any]]) -> None:
        for _, one in weights:
            assert (one.shape, one.size(0), one.ndim) == ((2, 2), 2, 2)
            assert (one.dtype, one.device.type) == (torch.float32, "cpu")
            assert not one.is_cuda

    assert update(Model(look), "a").untaken() == ["a"]


@pytest.mark.parametrize(
    "name",
    ["lm_head.weight", "model.layers.0.rotary_emb.inv_freq", "mtp.a", "a.k_scale"],
)
def test_a_tensor_that_models_may_skip_is_not_missed(name: str) -> None:
    loaded = update(Model(copy), name, "other")
    assert loaded.untaken() == [*loaded.names] == ["other"]


def test_the_names_of_a_checkpoint_come_from_its_index_or_files(tmp_path: Path) -> None:
    assert loaded_tensors.names_in_checkpoint(str(tmp_path / "no")) == set()
    safetensors_torch.save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    assert loaded_tensors.names_in_checkpoint(str(tmp_path)) == {"a"}
    assert loaded_tensors.missing_files(str(tmp_path)) == []
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert loaded_tensors.names_in_checkpoint(str(tmp_path)) == {"a", "b"}
    assert loaded_tensors.missing_files(str(tmp_path)) == ["two.safetensors"]
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert loaded_tensors.missing_files(str(tmp_path)) == []


def test_a_model_whose_loader_sglang_replaced_keeps_it() -> None:
    model = Model(copy)
    vars(model)["load_weights"] = own = lambda weights: fuse(model.parameters, weights)
    assert update(model, "a", "x").untaken() == ["x"]
    assert model.load_weights is own


def test_a_failed_load_leaves_nothing_behind() -> None:
    def fail(parameters: Any, weights: Iterable[tuple[str, Any]]) -> None:
        parameters["a"] = next(iter(weights))[1]
        raise KeyError("b")

    model = Model(fail)
    with pytest.raises(KeyError):
        update(model, "a", stream=True)
    assert "load_weights" not in vars(model)
    assert type(model.parameters["a"]) is torch.Tensor
