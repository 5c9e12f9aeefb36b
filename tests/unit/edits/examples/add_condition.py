"""An `if` gets a further condition."""

from __future__ import annotations

from agentcore_patches.edits import AddCondition
from tests.unit.edits.tables import FILE, Examples, Words

NARROW = AddCondition(FILE, "f", "if wanted: ...", "trace is None")

EXAMPLES: Examples = {
    NARROW: """
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

        narrowed
          def f(wanted):
              if (wanted) and (trace is None):
                  pass

        nothing to narrow
        ! `if wanted: ...` was not found
          def f(wanted):
              if not wanted:
                  pass
              elif wanted:
                  pass

        two to narrow
        ! `if wanted: ...` was found 2 times, expected 1
          def f(wanted):
              if wanted:
                  pass
              if wanted: pass
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
    AddCondition(FILE, "f", "if a or b: ...", "c or d"): """
        narrow what binds less than `and`
          def f():
        -     if a or b:
        +     if (a or b) and (c or d):
                  pass
    """,
    AddCondition(FILE, "f", "if a and b: ...", "c"): """
        narrow one more `and`
          def f():
        -     if a and b:
        +     if a and b and c:
                  pass
    """,
}

DESCRIBED: Words = {
    NARROW: "`and trace is None` in `if wanted: ...`",
}

MALFORMED: Words = {
    AddCondition(FILE, "f", "while a: ...", "b"): "`while a: ...` is not an `if`",
    AddCondition(FILE, "f", "if a", "b"): "`if a` cannot be parsed as one statement: ",
    AddCondition(
        FILE, "f", "if a: ...", "b ="
    ): "`b =` cannot be parsed as an expression: ",
}
