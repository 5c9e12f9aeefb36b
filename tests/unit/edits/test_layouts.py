"""Property tests on generated layouts."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.edits import AddKeyword, AddParameter, Insert
from tests.unit.edits.tables import FILE, comments, rewritten

MARK = "# agentcore-patch: ours"
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


def assert_marked(source: str, new: str, *, is_first: bool) -> None:
    """Check that comments are kept, and the edit's own is added where it can be."""
    found = comments(new)
    if not is_first:
        found.remove(MARK)
    assert found == comments(source)


@given(items([["a", "b.c"], ["*d"], ['e="f"', "g=(h)"], ["**i"]]))
def test_a_call_of_any_layout_gets_its_keyword_and_keeps_its_comments(
    arguments: str,
) -> None:
    source = f"def f(x):\n    x = Answer{arguments}  # end\n"
    new = rewritten(source, KEYWORD)

    call = next(node for node in ast.walk(ast.parse(new)) if isinstance(node, ast.Call))
    added = [keyword for keyword in call.keywords if keyword.arg == "ids"]
    assert [ast.unparse(keyword) for keyword in added] == ["ids=x.ids"]
    call.keywords.remove(added[0])
    old = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    )
    assert ast.dump(call) == ast.dump(old)
    assert_marked(source, new, is_first=not (call.args or call.keywords))
    assert rewritten(new, KEYWORD) == new


@given(items([["a", "b: int"], ["c=1", "d: str = 'e'"], ["*f"], ["g=2"], ["**h"]]))
def test_a_function_of_any_layout_gets_its_parameter_and_keeps_its_comments(
    parameters: str,
) -> None:
    source = f"def f{parameters}:  # end\n    pass\n"
    edit = AddParameter(FILE, "f", "trace=None", note="ours")
    new = rewritten(source, edit)

    namespace: dict[str, object] = {}
    function = ast.parse(new).body[0]
    old = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(old, ast.FunctionDef)
    exec(compile(new, FILE, "exec"), namespace)
    args, before = function.args, old.args
    both = [(args.args, before.args, args.defaults, before.defaults)]
    both += [(args.kwonlyargs, before.kwonlyargs, args.kw_defaults, before.kw_defaults)]  # type: ignore[list-item]
    grown, kept = both if before.vararg is None else both[::-1]
    assert [arg.arg for arg in grown[0]] == [*(arg.arg for arg in grown[1]), "trace"]
    assert [arg.arg for arg in kept[0]] == [arg.arg for arg in kept[1]]
    assert_marked(source, new, is_first=not grown[1])
    assert rewritten(new, edit) == new


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
