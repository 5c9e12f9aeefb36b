"""A simple statement replaces another one."""

from __future__ import annotations

from agentcore_patches.edits import Replace
from tests.unit.edits.tables import FILE, Examples, Words

REPLACE = Replace(FILE, "f", "ids = [ids[-1]]", "ids = []", note="none")
REPLACE_EACH = Replace(FILE, "f", "yield dump(X)", "yield send(X)", each=2)

EXAMPLES: Examples = {
    REPLACE: """
        replace
          def f(ids):
              if ids:
                  print(ids)

                  # The last one.
        +         # agentcore-patch: none
        -         ids = [ids[-1]]  # alone
        +         ids = []  # alone
              return ids

        replaced
          def f(ids):
              ids=[
              ]

        nothing to replace
        ! `ids = [ids[-1]]` was not found
          def f(ids):
              ids = ids[-1:]

        two to replace
        ! `ids = [ids[-1]]` was found 2 times, expected 1
          def f(ids):
              ids = [ids[-1]]
              ids = [ids[-1]]

        replaced twice
        ! `ids = [ids[-1]]` was not found
          def f(ids):
              ids = []
              ids = []

        what would replace it is there besides it
        ! there is `ids = []` besides it: a second apply could not tell the two apart
          def f(ids):
              ids = []
              ids = [ids[-1]]
    """,
    REPLACE_EACH: """
        replace each
          def f(a):
        -     yield dump(a)
        +     yield send(a)
              yield a
              if a:
        -         yield dump(a.b)  # part of it
        +         yield send(a.b)  # part of it

        each replaced
          def f(a):
              yield send(a)
              yield send(0)

        none of each to replace
        ! `yield dump(X)` was not found, expected 2
          def f(a):
              yield a

        one more than expected
        ! `yield dump(X)` was found 3 times, expected 2
          def f(a):
              yield dump(a)
              yield dump(a)
              yield dump(a)

        one of two replaced already
        ! `yield dump(X)` was found once, expected 2
          def f(a):
              yield send(a)
              yield dump(a)
    """,
}

DESCRIBED: Words = {
    REPLACE: "`ids = []` in place of `ids = [ids[-1]]`",
    Replace(FILE, "f", "a(\n)", "b(\n)"): "`b(` in place of `a(`",
}

MALFORMED: Words = {
    Replace(FILE, "f", "if a: ...", "b()"): "`if a: ...` is not a simple statement",
    Replace(FILE, "f", "a()", "if b: c()"): "`if b: c()` is not a simple statement",
    Replace(FILE, "f", "a()", "b("): "`b(` cannot be parsed as one statement: ",
    Replace(FILE, "f", "a()", "b()\nc()"): "`b()` cannot be parsed as one statement: ",
    Replace(
        FILE, "f", "yield X", "yield g(X)"
    ): "`yield g(X)` has the shape of `yield X`, so that a second apply would replace it again",
    Replace(FILE, "f", "a()", "b()", each=-1): "`each` is -1, but must be 1 or more",
}
