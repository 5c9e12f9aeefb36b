"""Property tests on generated layouts."""

from __future__ import annotations

import ast
import re

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.edits import AddKeyword, Insert
from tests.unit.edits.tables import FILE, rewritten

KEYWORD = AddKeyword(FILE, "f", "Answer", "ids=x.ids", note="ours")
BEFORE = Insert(FILE, "f", "log(data)", before="return data")


@st.composite
def items(draw: st.DrawFn, kinds: list[list[str]]) -> str:
    """Draw a parenthesized list: some of each kind, in order, in any layout."""
    chosen = [item for kind in kinds for item in kind if draw(st.booleans())]
    gap = st.sampled_from(["", " ", "\n    ", "  # note\n        ", "\n    # own\n\n "])
    text = draw(gap)
    for index, item in enumerate(chosen):
        last = index + 1 == len(chosen)
        comma = draw(st.sampled_from(["", ","])) if last else ","
        before, after = draw(gap), draw(gap)
        text += f"{item}{before}{comma}{after}"
    return f"({text})"


@given(items([["a", "b.c"], ["*d"], ['e="f"', "g=(h)"], ["**i"]]))
def test_a_call_of_any_layout_gets_its_keyword_and_keeps_its_comments(
    arguments: str,
) -> None:
    source = f"def f(x):\n    x = Answer{arguments}  # end\n"
    new = rewritten(source, KEYWORD)
    call, old = (
        next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        for text in (new, source)
    )
    [added] = [keyword for keyword in call.keywords if keyword.arg == "ids"]
    assert ast.unparse(added) == "ids=x.ids"
    call.keywords.remove(added)
    assert ast.dump(call) == ast.dump(old)
    # The first argument has no comment.
    found, mark = re.findall("#.*", new), "# agentcore-patch: ours"
    assert found.count(mark) == bool(call.args or call.keywords)
    assert [one for one in found if one != mark] == re.findall("#.*", source)
    assert rewritten(new, KEYWORD) == new


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Draw the lines of a block; a line `HERE` marks places for `return data`."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        lines += draw(st.sampled_from([[], [""], ["# why"], ["HERE"]]))
        kinds = ["x = 1", "y = [\n    2,  # two\n]", "pass;  x = 3", "z = '''\n  4'''"]
        opening = draw(
            st.sampled_from(["if x:", "for x in y:", "try:", "def g():", ""])
        )
        if opening and depth < 3:
            inner = [*draw(bodies(depth + 1)), "pass"]
            lines += [opening, *(f"    {line}" if line else "" for line in inner)]
            lines += ["finally:", "    x = 5"] if opening == "try:" else []
        else:
            lines += draw(st.sampled_from(kinds)).splitlines()
    return lines


@given(bodies(), st.data())
def test_an_insertion_adds_its_lines_and_touches_no_other(
    body: list[str], data: st.DataObject
) -> None:
    lines = [
        "def f(data):",
        *(f"    {line}" if line else "" for line in body),
        "    HERE",
    ]
    marks = [number for number, line in enumerate(lines) if line.strip() == "HERE"]
    chosen = data.draw(st.sampled_from(marks))
    anchor = lines[chosen].replace("HERE", "return data  # all")
    lines[chosen] = anchor
    source = "".join(f"{line}\n" for line in lines if line.strip() != "HERE")
    added = anchor.replace("return data  # all", "log(data)") + "\n"
    new = rewritten(source, BEFORE)
    head, _, tail = new.partition(added)
    assert head + tail == source
    # Blank lines and comments above a statement stay with it.
    between = tail[: tail.index(anchor)].splitlines()
    assert all(line.strip() in ("", "# why") for line in between)
    assert rewritten(new, BEFORE) == new
