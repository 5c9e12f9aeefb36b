"""A file that lacks a definition is refused; nothing is ever changed."""

from __future__ import annotations

from agentcore_patches.edits import ExpectDefinition
from tests.unit.edits.tables import FILE, Examples, Words

DEFINED = ExpectDefinition(FILE, "Answer.send")

EXAMPLES: Examples = {
    DEFINED: """
        a class with the method
          class Answer:
              async def send(self): pass

        a class without
        ! `send` is not defined
          class Answer:
              def receive(self): pass

        one with two of them
        ! `send` is defined 2 times
          class Answer:
              def send(self): pass
              def send(self): pass
    """,
}

DESCRIBED: Words = {
    DEFINED: "a check that there is `Answer.send`",
}

MALFORMED: Words = {
    ExpectDefinition(FILE, "A b"): "the scope `A b` is not a dotted name",
}
