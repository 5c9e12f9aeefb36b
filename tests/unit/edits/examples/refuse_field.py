"""A class that declares one of some fields is refused; nothing is ever changed."""

from __future__ import annotations

from agentcore_patches.edits import RefuseField
from tests.unit.edits.tables import FILE, Examples, Words

REFUSE = RefuseField(FILE, "Answer", ("ids", "trace"), name="token-ids/absent")

EXAMPLES: Examples = {
    REFUSE: """
        a class without the fields
          class Answer:
              text: str
              id: int = 0
              def f(self):
                  ids: list = []
          class Other:
              ids: list

        a class without any
          class Answer: pass

        a field of that name
        ! the class has a field of that name: `trace: Optional[str] = None`. SGLang
        ! already returns this field, so the patch would write it twice
          class Answer:
              text: str
              trace: Optional[str] = None

        a field of that name without a default
        ! the class has a field of that name: `ids: list`. SGLang already returns this field,
        ! so the patch would write it twice
          class Answer:
              def f(self): pass
              ids: list
    """,
}

DESCRIBED: Words = {
    REFUSE: "a check that there is no field `ids` or `trace`",
    RefuseField(FILE, "A", ("ids",)): "a check that there is no field `ids`",
}

MALFORMED: Words = {
    RefuseField(FILE, "A", ()): "() is not a tuple of names",
    RefuseField(FILE, "A", ("a.b",)): "('a.b',) is not a tuple of names",
    RefuseField(FILE, "A", "ids"): "'ids' is not a tuple of names",  # type: ignore[arg-type]
    RefuseField(FILE, "A b", ("ids",)): "the scope `A b` is not a dotted name",
}
