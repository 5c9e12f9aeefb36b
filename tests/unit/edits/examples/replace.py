"""A simple statement replaces another one."""

from __future__ import annotations

from agentcore_patches.edits import Replace
from tests.unit.edits.tables import FILE, Examples, Words

REPLACE = Replace(FILE, "f", "ids = [ids[-1]]", "ids = []", note="none")

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
        ! `ids = []` is already there, so a second apply could not tell them apart
          def f(ids):
              ids = []
              ids = [ids[-1]]
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
        FILE, "f", "yield $X", "yield g($X)"
    ): "`yield g($X)` has the shape of `yield $X`, so that a second apply would replace it again",
}
