"""Edits of statements and of calls in them."""

from __future__ import annotations

from agentcore_patches.edits import AddCondition, AddKeyword, Insert, Replace
from tests.unit.edits.tables import FILE, Examples, Words

EXAMPLES: Examples = {
    Insert(FILE, "f", "log(data)", before="return data"): """
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
              return data
              return data
        anchor in a suite on the line of its `if`
        ! `return data` was not found
          def f(data):
              if data: return data
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
    Insert(FILE, "f", "log(state)", after="state = make(...)"): """
        after, in an exception handler
          class A:
              def f(self): pass

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
                      while True: break
                      else: pass
        +             x = 1

                      return x
    """,
    Insert(FILE, "A.f", "if data:\n    log(data)", before="return data"): """
        a block among tabs
          class A:
          \tdef f(self):
        + \t\tif data:
        + \t\t\tlog(data)
          \t\treturn data
    """,
    Insert(FILE, "f", "trace = None"): """
        at the start, after the docstring
          def f(x):
              '''What it does.'''
        +     trace = None
              # How.
              return x
        start of a function on one line
        ! its body is on the line of its header
          def f(data): return data
    """,
    Replace(FILE, "f", "ids = [ids[-1]]", "ids = []", note="none"): """
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
        what would replace it is there besides it
        ! `ids = []` is already there, so a second apply could not tell them apart
          def f(ids):
              ids = []
              ids = [ids[-1]]
    """,
    AddCondition(FILE, "f", "if wanted: ...", "trace is None"): """
        narrow
          def f(wanted):
        -     if wanted:  # then
        +     if wanted and trace is None:  # then
                  # It is.
                  pass
              else:
                  pass
        narrow what stands in parentheses
          def f(wanted):
              if(
                  wanted  # at all
        -     ): pass
        +     ) and trace is None: pass
        nothing to narrow
        ! `if wanted: ...` was not found
          def f(wanted):
              if not wanted: pass
              elif wanted: pass
    """,
    AddCondition(FILE, "f", "if wanted: ...", "trace is None", note="once"): """
        the comment above it, after the file's own
          def f(wanted):
              # It is.
        +     # agentcore-patch: once
        -     if wanted:
        +     if wanted and trace is None:
                  pass
    """,
    AddCondition(FILE, "f", "if ... or b: ...", "c if a else d"): """
        narrow what binds less than `and`
          def f():
        -     if (e := a) or b:
        +     if ((e := a) or b) and (c if a else d):
                  pass
    """,
    AddKeyword(FILE, "f", "Answer", "ids=x.ids"): """
        the only argument
          def f(x):
        -     return Answer()
        +     return Answer(ids=x.ids)
        argument on the line
          def f(x):
        -     return Answer(x, text="ids")
        +     return Answer(x, text="ids", ids=x.ids)
        argument on a line of its own before what is unpacked
          def f(x):
              return Answer(
                  text="",
                  reason=None,  # not yet
        +         ids=x.ids,
                  **{
                      1: x
                  },
              )
        argument after the only one, which has a line of its own
          def f(x):
              return Answer(
                  x,
        +         ids=x.ids,
              )
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
        a line of its own for the comment
          def f(x):
        -     return Answer(x, text="ids")
        +     return Answer(x, text="ids",
        +         # agentcore-patch: all of them
        +         ids=x.ids)
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

MALFORMED: Words = {
    Insert(FILE, "f", "a()", before="b()", after="c()"): "it has both `before` and `after`",
    Insert(FILE, "f", "a(", before="b()"): "`a(` cannot be parsed as Python: ",
    Insert(FILE, "f", "# why", before="b()"): "its new code has no statement",
    Insert(FILE, "f", "a()", before="b("): "`b(` cannot be parsed as one statement: ",
    Replace(FILE, "f", "if a: ...", "b()"): "`if a: ...` is not a simple statement",
    Replace(FILE, "f", "yield $X", "yield g($X)"): "`yield g($X)` has the shape of `yield $X`, so that a second apply would replace it again",
    AddCondition(FILE, "f", "while a: ...", "b"): "`while a: ...` is not an `if`",
    AddCondition(FILE, "f", "if a: ...", "b ="): "`b =` cannot be parsed as an expression: ",
    AddKeyword(FILE, "f", "Answer", "x.ids"): "`x.ids` is not one keyword argument",
    AddKeyword(FILE, "f", "Answer", "a=1, b=2"): "`a=1, b=2` is not one keyword argument",
}  # fmt: skip
