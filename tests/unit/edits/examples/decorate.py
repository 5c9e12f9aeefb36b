"""A decorator goes above a function's other decorators."""

from __future__ import annotations

from agentcore_patches.edits import Decorate
from tests.unit.edits.tables import FILE, Examples, Words

DECORATE = Decorate(FILE, "f", "agentcore.traces.stamped", note="why")
METHOD = Decorate(FILE, "A.f", 'agentcore.wrap(kind="chat")')

EXAMPLES: Examples = {
    DECORATE: """
        a function without decorators
          import os

          # What it is.
        + # agentcore-patch: why
        + @agentcore.traces.stamped
          def f(x):
              return x

        a function that has some
          x = 1
        + # agentcore-patch: why
        + @agentcore.traces.stamped
          @first  # of all
          # The second.
          @second(
              1,
          )

          # The function.
          async def f(x):
              return x

        a function that has it already
          @first
          @ agentcore.traces.stamped  # somebody's
          def f(x): return x

        no function but a class
        ! it is a class, not a function
          class f: pass
    """,
    METHOD: """
        a method
          class A:
              x = 1

              # What it is.
        +     @agentcore.wrap(kind="chat")
              def f(self): pass

        a method that has decorators
          class A:
              @other
              def g(self): pass
              # What it is.
        +     @agentcore.wrap(kind="chat")
              @staticmethod
              def f(): pass

        a method that has it already, with other quotes
          class A:
              @agentcore.wrap(
                  kind='chat',
              )
              def f(self): pass
    """,
}

DESCRIBED: Words = {
    DECORATE: "decorator `@agentcore.traces.stamped`",
}

MALFORMED: Words = {
    Decorate(FILE, "f", "@stamped"): "`@stamped` cannot be parsed as an expression: ",
    Decorate(FILE, "f", ""): "`` cannot be parsed as an expression: ",
    Decorate(FILE, "f()", "stamped"): "the scope `f()` is not a dotted name",
}
