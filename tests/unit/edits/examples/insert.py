"""Statements go before or after another one, or to the start of a function."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from tests.unit.edits.tables import FILE, Examples, Words

BEFORE = Insert(FILE, "f", "log(data)", before="return data")
AFTER = Insert(FILE, "f", "log(state)", after="state = make(...)")
START = Insert(FILE, "f", "trace = None")

EXAMPLES: Examples = {
    BEFORE: """
        before
          def f(data):
        +     log(data)
              return data

        no anchor
        ! `return data` was not found
          def f(data):
              return data.x

        two anchors
        ! `return data` was found 2 times, expected 1
          def f(data):
              if data:
                  return data
              return data

        anchor in a suite on the line of its `if`
        ! `return data` was not found
          def f(data):
              if data: return data

        anchor that shares its line
        ! `return data` was not found
          def f(data):
              data += 1; return data

        anchor on the line of its function
        ! `return data` was not found
          def f(data): return data
    """,
    Insert(FILE, "f", "log(data)\nflush()", before="return data", note="why"): """
        before, in nested blocks
          def f(data):
              for x in data:
                  with x:
                      y = 1
        +             # agentcore-patch: why
        +             log(data)
        +             flush()

                      # The end.
                      return data  # all
              else:
                  pass
              return None

        statements, with others between them and the anchor
          def f(data):
              log( data )  # first
              # then
              flush()
              x = 1
              return data
    """,
    AFTER: """
        after, in an exception handler
          class A:
              def f(self):
                  pass


          def f(x):
              try:
                  pass
              except KeyError:
                  state = make(
                      x,  # it
                  )
        +         log(state)
                  # And then:
                  return state
    """,
    Insert(FILE, "A.B.f", "x = 1", after="while True: ..."): """
        after a compound statement, in a decorated method of a class in a class
          class A:
              class B:
                  @staticmethod
                  @decorated(
                      by=1,
                  )
                  async def f():
                      while True:
                          break
                      else:
                          pass
        +             x = 1

                      return x
    """,
    START: """
        at the start, after the docstring
          def f(x):
              '''What it does.'''
        +     trace = None
              # How.
              return x

        at the start, without a docstring
          def f(x):
        +     trace = None
              return x

        statement, no longer at the start
          def f(data):
              print()
              trace = None

        start of a function on one line
        ! its body is on the line of its header
          def f(data): return data
    """,
}

DESCRIBED: Words = {
    BEFORE: "`log(data)` before `return data`",
    AFTER: "`log(state)` after `state = make(...)`",
    START: "`trace = None` at the start",
}

MALFORMED: Words = {
    Insert(
        FILE, "f", "a()", before="b()", after="c()"
    ): "it has both `before` and `after`",
    Insert(FILE, "f", "a(", before="b()"): "`a(` cannot be parsed as Python: ",
    Insert(FILE, "f", "# why", before="b()"): "its new code has no statement",
    Insert(FILE, "f", "", before="b()"): "its new code has no statement",
    Insert(FILE, "f", "a()", before="b("): "`b(` cannot be parsed as one statement: ",
    Insert(
        FILE, "f", "a()", after="b()\nc()"
    ): "`b()` cannot be parsed as one statement: ",
}
