"""A keyword argument goes to the end of a call, before unpacked arguments."""

from __future__ import annotations

from agentcore_patches.edits import AddKeyword
from tests.unit.edits.tables import FILE, Examples, Words

KEYWORD = AddKeyword(FILE, "f", "Answer", "ids=x.ids")

EXAMPLES: Examples = {
    KEYWORD: """
        the only argument
          def f(x):
        -     return Answer()
        +     return Answer(ids=x.ids)

        argument on the line
          def f(x):
        -     return Answer(x, text="ids")
        +     return Answer(x, text="ids", ids=x.ids)

        argument on a line of its own, after the comments
          def f(x):
              return Answer(
                  text="",
                  # Why it ended.
                  reason=None,  # not yet
                  # More to come.
        +         ids=x.ids,
              )

        argument below the others
          def f(x):
              return Answer(text="",
        -                   reason=None)
        +                   reason=None,
        +                   ids=x.ids)

        argument after a single one without a comma
          def f(x):
              return Answer(
        -         x  # all of it
        +         x, ids=x.ids  # all of it
              )

        argument before what is unpacked
          def f(x):
        -     return Answer(text="", **x.rest)
        +     return Answer(text="", ids=x.ids, **x.rest)

        argument on a line of its own before what is unpacked
          def f(x):
              return Answer(
                  text="",
                  reason=None,  # not yet
        +         ids=x.ids,
                  **{
                      name: getattr(x, name)
                      for name in NAMES
                  },
              )

        argument where all is unpacked
          def f(x):
        -     return Answer(**x.rest)
        +     return Answer(**x.rest, ids=x.ids)

        argument after a generator that was the only one
          def f(x):
        -     return Answer(y for y in x)
        +     return Answer((y for y in x), ids=x.ids)

        argument, at another place
          def f(x):
              return Answer(
                  ids = x.ids,  # the IDs
                  text="",
              )

        another argument of that name
        ! a call has another argument of that name: `ids=x.output_ids`
          def f(x):
              return Answer(ids=x.output_ids)

        no call
        ! a call of `Answer` was not found
          def f(x):
              return answer(x)

          def g(x):
              return Answer(x)

        two calls
        ! a call of `Answer` was found 2 times, expected 1
          def f(x):
              return Answer(1), Answer(2)
    """,
    AddKeyword(FILE, "f", "Answer", "ids=x.ids", note="all of them"): """
        the comment above it, after the others
          def f(x):
              return Answer(
                  text="",
                  # Why it ended.
                  reason=None,  # not yet
                  # More to come.
        +         # agentcore-patch: all of them
        +         ids=x.ids,
              )

        the comment above it, below the others
          def f(x):
              return Answer(text="",
        -                   reason=None)
        +                   reason=None,
        +                   # agentcore-patch: all of them
        +                   ids=x.ids)

        a line of its own for the comment
          def f(x):
        -     return Answer(x, text="ids")
        +     return Answer(x, text="ids",
        +         # agentcore-patch: all of them
        +         ids=x.ids)

        no comment before the only argument
          def f(x):
        -     return Answer()
        +     return Answer(ids=x.ids)
    """,
    AddKeyword(FILE, "f", "x.Answer", "ids=x.ids"): """
        the call of that name only
          def f(x):
        -     return Answer(3), Answer, lambda: x.Answer(*x, **g(Answer(4)))
        +     return Answer(3), Answer, lambda: x.Answer(*x, ids=x.ids, **g(Answer(4)))
    """,
    AddKeyword(FILE, "f", "self.run", "ids=(\n    x.ids if x.wanted else None\n)"): """
        argument of several lines
          def f(self, x):
              if x:
                  self.run(
                      1,
                      2,
        +             ids=(
        +                 x.ids if x.wanted else None
        +             ),
                  )
    """,
}

DESCRIBED: Words = {
    KEYWORD: "argument `ids=` of `Answer`",
    AddKeyword(
        FILE, "f", "self.run", "ids = (\n    x\n)"
    ): "argument `ids=` of `self.run`",
}

MALFORMED: Words = {
    AddKeyword(FILE, "f", "Answer", "x.ids"): "`x.ids` is not one keyword argument",
    AddKeyword(FILE, "f", "Answer", "**x"): "`**x` is not one keyword argument",
    AddKeyword(
        FILE, "f", "Answer", "a=1, b=2"
    ): "`a=1, b=2` is not one keyword argument",
    AddKeyword(FILE, "f", "Answer", ""): "`` is not one keyword argument",
    AddKeyword(
        FILE, "f", "Answer(", "a=1"
    ): "`Answer(` cannot be parsed as an expression: ",
}
