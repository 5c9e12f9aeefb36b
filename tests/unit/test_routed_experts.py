"""Routed experts, from the engine's output to the response's fields."""

from __future__ import annotations

import base64
import io
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release, routed_experts

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
    of_choice = routed_experts.of_choice(
        serving(**config), request(), {"routed_experts": encoded(rows)}
    )
    assert of_choice["routed_experts_start_len"] == 0
    data = base64.b64decode(of_choice["routed_experts"], validate=True)
    return np.load(io.BytesIO(data), allow_pickle=False)


@pytest.mark.parametrize(
    ("config", "highest", "expected"),
    [
        ({"num_experts": 8}, 7, "uint8"),
        ({"num_experts": 256}, 7, "uint8"),
        ({"num_experts": 257}, 7, "uint16"),
        ({"n_routed_experts": 512}, 511, "uint16"),
        ({"num_local_experts": 65_536}, 9, "uint16"),
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


def test_no_rows_become_an_array_without_rows() -> None:
    found = said(experts(3, n_tokens=0), num_experts=8)
    assert found.shape == (0, LAYERS, TOP_K)
    assert found.dtype == np.uint8


def test_a_negative_number_is_an_error() -> None:
    rows = experts(3)
    rows[1, 0, 0] = -1
    with pytest.raises(ValueError, match="negative number"):
        said(rows, num_experts=8)


def test_without_a_format_experts_are_passed_unchanged() -> None:
    meta_info = {"routed_experts": encoded(experts(3))}
    assert routed_experts.of_choice(serving(), request(None, 2), meta_info) == {
        **meta_info,
        "routed_experts_start_len": 2,
    }
    assert routed_experts.of_choice(serving(), request(), {}) == {}
    assert (
        routed_experts.of_choice(serving(), request(), {"routed_experts": None}) == {}
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"format": None}, True),
        ({"return_token_ids": True}, True),
        ({"return_token_ids": False}, True),
        ({"format": None, "return_token_ids": False}, False),
        ({"return_routed_experts": False}, False),
        ({"return_routed_experts": None}, False),
    ],
)
def test_token_ids_false_omits_experts_unless_a_format_is_named(
    asked: dict[str, Any], expected: bool
) -> None:
    assert routed_experts.is_wanted(request(**asked)) is expected


def state(start: int = 0, asks: bool = True) -> Any:
    obj = SimpleNamespace(return_routed_experts=asks, routed_experts_start_len=start)
    return SimpleNamespace(obj=obj)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("start", [0, 1, 5, 9])
def test_experts_begin_at_the_start_and_return_it(
    monkeypatch: pytest.MonkeyPatch, start: int, native: bool
) -> None:
    monkeypatch.setattr(release, "ROUTED_EXPERTS_HAVE_START", native)
    rows = experts(7)
    meta_info = {"routed_experts": encoded(rows)}
    routed_experts.take(serving().tokenizer_manager, state(start), meta_info)
    assert meta_info == {
        "routed_experts": encoded(rows if native else rows[start:]),
        "routed_experts_start_len": start,
    }


def test_requests_without_the_flag_get_no_experts() -> None:
    for found in ({"routed_experts": None}, {"routed_experts": "AAAA"}, {}):
        meta_info: dict[str, Any] = {"id": 1, **found}
        routed_experts.take(serving().tokenizer_manager, state(asks=False), meta_info)
        assert meta_info == {"id": 1}
    meta_info = {"routed_experts": None}
    routed_experts.take(serving().tokenizer_manager, state(), meta_info)
    assert meta_info == {"routed_experts": None}


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
        (prompt(3, text=["abc", "abcd"]), None),
        (prompt(-1, input_ids=[1, 2]), "is -1, and must be 0 or more"),
        (prompt(0, input_ids=[1]), None),
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


def test_the_engine_request_asks_for_experts() -> None:
    adapted = prompt(0, input_ids=[1, 2, 3], return_routed_experts=False)
    routed_experts.ask(serving(), request(start=2), adapted)
    found = (adapted.return_routed_experts, adapted.routed_experts_start_len)
    assert found == (True, 2)
    beyond = prompt(4, input_ids=[1, 2, 3])
    with pytest.raises(ValueError, match=r"is 4, and the prompt has only 3 tokens"):
        routed_experts.ask(serving(), request(start=4), beyond)


def test_without_a_tokenizer_text_is_not_counted() -> None:
    manager = SimpleNamespace(tokenizer=None)
    assert routed_experts.check(manager, prompt(9, text="abc")) is None


@pytest.mark.parametrize("value", [0, 7, None])
def test_a_start_is_an_integer_or_null(value: int | None) -> None:
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(routed_experts.StartLen)
    assert adapter.validate_python(value) == (value or 0)
    assert adapter.json_schema()["type"] == "integer"


@pytest.mark.parametrize("value", [-1, "7", 1.0, 1.5, True, [1], {}])
def test_an_invalid_start_is_refused(value: object) -> None:
    pydantic = pytest.importorskip("pydantic")
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(routed_experts.StartLen).validate_python(value)
