"""Routed experts, from the engine's output to the response's fields."""

from __future__ import annotations

import base64
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import routed_experts

np = pytest.importorskip("numpy")
pytest.importorskip("pybase64")

LAYERS, TOP_K = 2, 3


def serving(**config: Any) -> Any:
    text = SimpleNamespace(
        num_hidden_layers=LAYERS, num_experts_per_tok=TOP_K, **config
    )
    model = SimpleNamespace(hf_text_config=text)
    tokenizer = SimpleNamespace(encode=lambda text: [*map(ord, text)])
    manager = SimpleNamespace(model_config=model, tokenizer=tokenizer)
    return SimpleNamespace(tokenizer_manager=manager)


def experts(highest: int, n_tokens: int = 5) -> Any:
    rows = np.arange(n_tokens * LAYERS * TOP_K, dtype=np.int32)
    return (rows % (highest + 1))[::-1].reshape(n_tokens, LAYERS, TOP_K).copy()


def encoded(rows: Any) -> str:
    return base64.b64encode(rows.astype(np.int32).tobytes()).decode()


def request(format: str | None = "npy", start: int = 0, **more: Any) -> Any:
    asked = {"return_routed_experts": True, "return_token_ids": None, **more}
    return SimpleNamespace(
        routed_experts_format=format, routed_experts_start_len=start, **asked
    )


def said(rows: Any, **config: Any) -> Any:
    of_choice = routed_experts.choice_fields(
        serving(**config), request(), {"routed_experts": encoded(rows)}
    )
    assert of_choice["routed_experts_start_len"] == 0
    data = base64.b64decode(of_choice["routed_experts"], validate=True)
    return np.load(io.BytesIO(data), allow_pickle=False)


@pytest.mark.parametrize(
    ("config", "highest", "expected"),
    [
        ({"num_experts": 257}, 7, "uint16"),
        ({"n_routed_experts": 512}, 511, "uint16"),
        ({"moe_num_experts": 65_537}, 9, "uint32"),
        # Redundant experts have numbers beyond the model's own.
        ({"num_experts": 256}, 256, "uint16"),
        # A model with another name for the number, or with a number per layer.
        ({}, 255, "uint8"),
        ({"moe_num_experts": [64, 64]}, 256, "uint16"),
    ],
)
def test_the_dtype_is_the_smallest_that_fits_the_experts(
    config: dict[str, Any], highest: int, expected: str
) -> None:
    rows = experts(highest, n_tokens=100)
    found = said(rows, **config)
    assert found.dtype == expected
    assert (found == rows).all()


def test_experts_in_each_shape() -> None:
    rows = experts(8)

    def in_shape(name: str) -> Any:
        return routed_experts.in_shape(
            serving(num_experts=9).tokenizer_manager, encoded(rows), name, 5
        )

    assert in_shape("nested") == rows.tolist()
    data = base64.b64decode(in_shape("npy"))
    assert (np.load(io.BytesIO(data), allow_pickle=False) == rows).all()
    found = in_shape("object")
    # Clients recognize the object by its first bytes.
    assert json.dumps(found, separators=(",", ":")).startswith('{"data":"')
    shape = [len(rows), LAYERS, TOP_K]
    assert (found["shape"], found["dtype"], found["start"]) == (shape, "uint8", 5)
    flat = np.frombuffer(base64.b64decode(found["data"]), dtype=found["dtype"])
    assert (flat.reshape(shape) == rows).all()


def test_a_negative_number_is_an_error() -> None:
    rows = experts(3)
    rows[1, 0, 0] = -1
    with pytest.raises(ValueError, match="negative number"):
        said(rows, num_experts=8)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"format": None}, True),
        ({"return_token_ids": False}, True),
        ({"format": None, "return_token_ids": False}, False),
        ({"return_routed_experts": False}, False),
    ],
)
def test_token_ids_false_omits_experts_unless_a_format_is_named(
    asked: dict[str, Any], expected: bool
) -> None:
    assert routed_experts.is_wanted(request(**asked)) is expected


def prompt(start: int, **more: Any) -> Any:
    fields = {
        "return_routed_experts": True,
        "routed_experts_start_len": start,
        "contains_mm_input": lambda: False,
        "session_params": None,
        "input_embeds": None,
        "input_ids": None,
        "text": None,
    }
    return SimpleNamespace(**{**fields, **more})


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (prompt(3, input_ids=[1, 2, 3]), None),
        (prompt(4, input_ids=[1, 2, 3]), "is 4, and the prompt has only 3 tokens"),
        (prompt(3, input_ids=[[1, 2, 3], [1, 2]]), "only 2 tokens"),
        (prompt(4, text="abc"), "only 3 tokens"),
        (prompt(-1, input_ids=[1, 2]), "is -1, and must be 0 or more"),
        # No experts are requested, or only the engine knows the prompt's length.
        (prompt(9, input_ids=[1], return_routed_experts=False), None),
        (prompt(9, input_ids=[1], contains_mm_input=lambda: True), None),
        (prompt(9, input_ids=[1], session_params={"id": "a"}), None),
        (prompt(9, input_embeds=[[0.5]]), None),
        (prompt(9), None),
        # A request for an embedding.
        (SimpleNamespace(input_ids=[1]), None),
    ],
)
def test_a_start_beyond_the_prompt_is_refused(obj: Any, expected: str | None) -> None:
    manager = serving().tokenizer_manager
    error = routed_experts.check(manager, obj)
    assert (error is None) == (expected is None)
    if error is not None:
        assert error.startswith("routed_experts_start_len")
        assert str(expected) in error
