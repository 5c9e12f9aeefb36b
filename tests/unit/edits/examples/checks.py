"""Checks: they refuse a file and never change one."""

from __future__ import annotations

from agentcore_patches.edits import (
    Expect,
    RefuseDefinition,
    RefuseField,
)
from tests.unit.edits.tables import FILE, Examples, Words

EXAMPLES: Examples = {
    Expect(FILE, "Answer", "ids: $T = ...", name="release-checks/ids"): """
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
    Expect(FILE, "Answer.send"): """
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
    RefuseDefinition(FILE, "Answer.send", name="release-checks/send"): """
        a class without the method
          class Answer:
              send: int = 0
              def f(self):
                  def send(): pass
          def send(): pass
        a class with it
        ! it was found, so this is another release's file
          class Answer:
              text: str
              async def send(self): pass
        no class
        ! `Answer` is not defined
          x = 1
    """,
    RefuseField(FILE, "Answer", ("ids", "trace"), name="token-ids/absent"): """
        a class without the fields
          class Answer:
              text: str
              id: int = 0
              def f(self):
                  ids: list = []
          class Other:
              ids: list
        a field of that name
        ! the class has a field of that name: `trace: Optional[str] = None`. SGLang
        ! already returns this field, so the patch would write it twice
          class Answer:
              text: str
              trace: Optional[str] = None
    """,
}

MALFORMED: Words = {
    Expect(FILE, "A", "x ="): "`x =` cannot be parsed as one statement",
    Expect(FILE, "A b", "x = 1"): "the scope `A b` is not a dotted name",
    RefuseField(FILE, "A", ()): "() is not a tuple of names",
    RefuseField(FILE, "A", "ids"): "'ids' is not a tuple of names",  # type: ignore[arg-type]
}  # fmt: skip
