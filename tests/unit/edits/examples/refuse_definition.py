"""A file that defines something is refused; nothing is ever changed."""

from __future__ import annotations

from agentcore_patches.edits import RefuseDefinition
from tests.unit.edits.tables import FILE, Examples, Words

REFUSE = RefuseDefinition(FILE, "Answer.send", name="telltales/send")

EXAMPLES: Examples = {
    REFUSE: """
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
              def send(self): pass

        one that is async
        ! it was found, so this is another release's file
          class Answer:
              async def send(self): pass

        no class
        ! `Answer` is not defined
          x = 1
    """,
    RefuseDefinition(FILE, "Answer"): """
        no class
          Answer = 1

        a class
        ! it was found, so this is another release's file
          class Answer: pass
    """,
}

DESCRIBED: Words = {
    REFUSE: "a check that there is no `Answer.send`",
}

MALFORMED: Words = {
    RefuseDefinition(FILE, "A b"): "the scope `A b` is not a dotted name",
}
