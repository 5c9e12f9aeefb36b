"""A definition that lacks a statement is refused; nothing is ever changed."""

from __future__ import annotations

from agentcore_patches.edits import Expect
from tests.unit.edits.tables import FILE, Examples, Words

EXPECT = Expect(FILE, "Answer", "ids: $T = ...", name="telltales/ids")

EXAMPLES: Examples = {
    EXPECT: """
        a class with the field
          class Answer:
              text: str
              ids: Optional[list] = None

        one with two of them
          class Answer:
              ids: list = ()
              ids: list = None

        a field of another shape
        ! it was not found, so this is another release's file
          class Answer:
              ids: list
    """,
}

DESCRIBED: Words = {
    EXPECT: "a check that there is `ids: $T = ...`",
}

MALFORMED: Words = {
    Expect(FILE, "A", "x ="): "`x =` cannot be parsed as one statement",
    Expect(FILE, "A b", "x = 1"): "the scope `A b` is not a dotted name",
}
