"""A definition that is missing, or lacks a statement, is refused; nothing is changed."""

from __future__ import annotations

from agentcore_patches.edits import Expect
from tests.unit.edits.tables import FILE, Examples, Words

EXPECT = Expect(FILE, "Answer", "ids: T = ...", name="telltales/ids")
DEFINED = Expect(FILE, "Answer.send")

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

        no class
        ! `Answer` is not defined
          x = 1
    """,
    DEFINED: """
        a class with the method
          class Answer:
              def send(self): pass

        a class without
        ! `send` is not defined
          class Answer:
              def receive(self): pass
    """,
}

DESCRIBED: Words = {
    EXPECT: "a check that there is `ids: T = ...`",
    DEFINED: "a check that there is `Answer.send`",
}

MALFORMED: Words = {
    Expect(FILE, "A", "x ="): "`x =` cannot be parsed as one statement",
    Expect(FILE, "A b"): "the scope `A b` is not a dotted name",
}
