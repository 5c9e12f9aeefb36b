"""The command `audit`: files, exit codes, the table, the document and the picture."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_patches.command.cli import main
from agentcore_patches.command.documentation import page
from agentcore_verify.audit import lines, prefixes
from agentcore_verify.audit.auditor import Auditor
from agentcore_verify.audit.findings import FINDINGS
from agentcore_verify.audit.readers import turns_of
from agentcore_verify.audit.readers.fields import BadRecord
from agentcore_verify.audit.results import Audit
from tests.helpers.built_records import (
    SHAPES,
    Json,
    conversation,
    kept,
    records,
    save_tokenizer,
    write,
)
from tests.helpers.documents import Error, mismatches, places_in

Audited = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audited(capsys: pytest.CaptureFixture[str]) -> Audited:
    """Run the command; return its exit code and output."""

    def run(*args: object) -> tuple[int, str, str]:
        code = main(["audit", *map(str, args)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return write(tmp_path / "clean.jsonl", records(conversation(3)))


@pytest.fixture
def defective(tmp_path: Path) -> Path:
    turns = conversation(2)
    turns[1].logprobs = None
    return write(tmp_path / "defective.jsonl", records(turns))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return save_tokenizer(tmp_path / "model")


def test_a_clean_file_exits_with_0(
    audited: Audited, clean: Path, tokenizer: Path
) -> None:
    code, out, err = audited(clean, "--tokenizer", tokenizer)

    assert (code, err) == (0, "")
    assert f"{clean}: 3 turns, 3 answers" in " ".join(out.split())
    assert "CLEAN: nothing was found" in out and "not checked" not in out
    for finding in FINDINGS:
        assert f"\n{finding.name} " in out
    assert audited(clean, "-q") == (0, "", "")
    code, out, _ = audited(clean)
    assert code == 0 and out.count("not checked") == 2
    assert "Give --tokenizer to check text-differs and drift." in out


def test_findings_exit_with_1_and_are_explained_and_drawn(
    audited: Audited, defective: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "audit.svg"
    code, out, err = audited(defective, "--svg", picture)

    assert (code, err) == (1, "")
    [finding] = [one for one in FINDINGS if one.name == "logprobs-missing"]
    for sentence in (finding.meaning, f"What to do: {finding.remedy}"):
        assert sentence in " ".join(out.split())
    assert f"First in {defective}, line 2, session s" in " ".join(out.split())
    assert "FOUND: logprobs-missing" in out and "docs audit" in out
    assert "50 %" in out
    assert "FOUND: logprobs-missing" in audited(defective, "-q")[1]
    text = picture.read_text("utf-8")
    assert text.startswith("<svg") and "logprobs-missing" in text
    code, _, err = audited(defective, "--svg", tmp_path / "no" / "audit.svg")
    assert code == 5 and "is not a writable folder" in err


def test_the_document_has_its_declared_type(
    audited: Audited, clean: Path, defective: Path
) -> None:
    code, out, err = audited(clean, defective, "--json")
    document = json.loads(out)

    assert (code, err) == (1, "")
    assert mismatches(document, Audit) == []
    assert (document["exit_code"], document["clean"]) == (1, False)
    assert document["files"] == [str(clean), str(defective)]
    rows = {row["name"]: row for row in document["findings"]}
    assert list(rows) == [finding.name for finding in FINDINGS]
    assert rows["logprobs-missing"]["share"] == 0.2
    # Sessions of two files have nothing to do with each other.
    assert (document["compared"], document["unmatched"]) == (3, 0)


def test_drift_is_tolerated_up_to_a_share(
    audited: Audited, tmp_path: Path, tokenizer: Path
) -> None:
    turns = conversation(2, call=True)
    turns[1].call = ("get_weather", '{"city":"Paris","days":3}')
    file = write(tmp_path / "drift.jsonl", records(turns))

    code, out, _ = audited(file, "--tokenizer", tokenizer)
    assert code == 1 and "tool arguments respelled (1)" in out
    for share, expected in (("0.001", 1), ("0.9", 0)):
        options = ("--tokenizer", tokenizer, "--max-drift", share)
        assert audited(file, *options)[0] == expected
    assert "drift                   tolerated" in audited(file, *options)[1]


def test_stdin_is_read(
    audited: Audited, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(clean.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)

    code, out, _ = audited("-", "--json")

    assert code == 0 and json.loads(out)["turns"] == 3


def test_a_gateway_database_is_read(audited: Audited, tmp_path: Path) -> None:
    file = tmp_path / "gateway traces?.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE traces (trace_id TEXT, data TEXT, created_at REAL)")
    traces = kept("gateway")
    traces[1]["logprobs"] = None
    for time, record in enumerate(traces):
        row = ("t", json.dumps(record), float(time))
        database.execute("INSERT INTO traces VALUES (?, ?, ?)", row)
    database.commit()
    database.close()

    code, out, _ = audited(file, "--json")

    document = json.loads(out)
    assert (code, document["turns"], document["compared"]) == (1, 2, 1)
    [row] = [row for row in document["findings"] if row["state"] == "found"]
    assert row["name"] == "logprobs-missing"
    assert row["first"]["place"] == f"{file}, row 2 of `traces`"


def test_rollouts_saved_without_their_trajectory_are_read(
    audited: Audited, tmp_path: Path
) -> None:
    call = json.dumps({"id": "c", "name": "f", "arguments": "{}"})
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    rollouts: list[Json] = [
        {
            "prompt": [],
            "completion": [answer, {"role": "user", "content": "?"}, answer],
        },
        {"prompt": "Once", "completion": "upon a time"},
    ]
    file = write(tmp_path / "results.jsonl", rollouts)

    code, out, _ = audited(file, "--json")

    assert code == 1
    rows = {row["name"]: row for row in json.loads(out)["findings"]}
    assert (rows["ids-missing"]["count"], rows["ids-missing"]["of"]) == (3, 3)


# Bad input.


BAD = [
    ("[1, 2]\n", "line 2 is not a JSON object."),
    ('{"request": {}\n', "line 2 is not JSON"),
    ('{"request": {}, "resp', "line 2, the last one, is cut off: "),
    ('{"a": 1}\n', "line 2 is not a recorded turn: expected an object with"),
    ('{"request": {}, "response": {"odd": 1}}\n', "line 2 has a `response` of no"),
    (
        '{"request": {}, "response": {"choices": [{"token_ids": [-1]}]}}\n',
        "line 2 has a `choices[].token_ids` that is not a list of token IDs",
    ),
    (
        '{"request": {}, "response": {"choices": [{"message": "hi"}]}}\n',
        "line 2 has a `choices[].message` that is not an object",
    ),
    ("[" * 100_000 + "\n", "line 2 is not JSON: it is nested too deeply"),
    ('{"request": "\udcff"}\n', "line 2 is not JSON"),
]


@pytest.mark.parametrize(("line", "says"), BAD)
def test_a_bad_line_is_named(
    audited: Audited, clean: Path, line: str, says: str
) -> None:
    first = clean.read_text("utf-8").splitlines()[0]
    clean.write_text(f"{first}\n{line}", "utf-8", errors="surrogateescape")

    code, out, err = audited(clean)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {clean}, {says}")
    assert "\nhint: " in err and err.count("\n") == 2

    code, out, err = audited(clean, "--json")
    assert (code, err) == (2, "")
    assert mismatches(json.loads(out), Error) == []


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((), 2, "hint: See `agentcore-patch audit --help`."),
        (("/no/such.jsonl",), 5, "Cannot read /no/such.jsonl: No such file"),
        (("/",), 5, "Cannot read /: Is a directory"),
        (("/dev/null",), 2, "No turn is recorded in /dev/null."),
        (("-", "-"), 2, "stdin (`-`) can be read only once."),
        (("-", "--max-drift", "2"), 2, "0<=x<=1"),
        (("-", "--tokenizer", "/no"), 2, "--tokenizer: there is no /no."),
        (("-", "--tokenizer", "/"), 2, "--tokenizer: there is no /tokenizer.json."),
        (("-", "--tokenizer", __file__), 2, "--tokenizer: cannot load "),
    ],
)
def test_files_that_cannot_be_audited_are_refused(
    audited: Audited, args: tuple[str, ...], code: int, says: str
) -> None:
    shown = audited(*args)
    assert shown[:2] == (code, "") and says in shown[2]


def test_an_unrelated_database_is_refused(audited: Audited, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE other (x)")
    database.commit()
    database.close()

    code, _, err = audited(file)

    assert code == 2 and "but not one of rllm-model-gateway: no such table" in err


def test_without_the_library_the_error_names_the_package(
    audited: Audited, clean: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    code, _, err = audited(clean, "--tokenizer", tokenizer)

    assert code == 2
    assert "hint: Run `pip install 'agentcore-patches[audit]'`." in err
    assert audited(clean)[0] == 0


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 500)
    | st.floats()
    | st.sampled_from(["", "text", "message", "{", "7"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "type", "index", "id"]), inner)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=30)
@given(data=st.data())
def test_any_damage_to_a_line_is_a_bad_record_or_readable(
    shape: str, data: st.DataObject
) -> None:
    line = kept(shape)[-1]
    holder, key = data.draw(st.sampled_from(places_in(line, 4)))
    holder[key] = data.draw(values)
    auditor = Auditor()

    try:
        for turn in turns_of(line):
            auditor.add(turn, "here")
    except BadRecord as error:
        assert str(error)
    else:
        assert auditor.result().exit_code in (0, 1)


# Size.


def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefixes, "BYTES_KEPT", 30_000)
    turns = conversation(2)
    sessions = (records(turns, f"session {number}") for number in range(240))
    file = write(
        tmp_path / "many.jsonl", (line for lines in sessions for line in lines)
    )
    assert file.stat().st_size > 800_000
    auditor = Auditor()

    tracemalloc.start()
    try:
        for place, turn in lines.turns_in(str(file)):
            auditor.add(turn, place)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    audit = auditor.result()
    assert audit.turns == 480 and audit.clean and audit.compared == 240
    assert peak < 400_000


def test_the_pages_of_findings_exist() -> None:
    text = page("audit").markdown()
    for finding in FINDINGS:
        assert page(finding.page).file.is_file()
        assert f"`{finding.name}`" in text
