"""A parameter with a default goes to the end of the parameters."""

from __future__ import annotations

from agentcore_patches.edits import AddParameter
from tests.unit.edits.tables import FILE, Examples, Words

PARAMETER = AddParameter(FILE, "f", "trace: Optional[Trace] = None")

EXAMPLES: Examples = {
    PARAMETER: """
        the only parameter
        - def f(): pass
        + def f(trace: Optional[Trace] = None): pass

        parameter on the line
        - def f(self, index): pass
        + def f(self, index, trace: Optional[Trace] = None): pass

        parameter on a line of its own
          async def f(
              self,
              index: int,  # of the choice
        +     trace: Optional[Trace] = None,
          ) -> None:
              pass

        parameter where no comma trails, comments stay with theirs
          def f(
              self,  # me
        -     index  # it
        +     index,  # it
        +     trace: Optional[Trace] = None
          ):
              pass

        parameter below a single one
          def f(
              self,
        +     trace: Optional[Trace] = None,
          ):
              pass

        parameter of a line that is indented as a whole
          def f(
        -     self, index
        +     self, index, trace: Optional[Trace] = None
          ):
              pass

        parameter after the keyword-only ones
        - def f(self, *, index=0, **rest): pass
        + def f(self, *, index=0, trace: Optional[Trace] = None, **rest): pass

        parameter that does not take a positional argument from *args
        - def f(self, *args): return args
        + def f(self, *args, trace: Optional[Trace] = None): return args

        parameter before **kwargs
          def f(
              self,
              index,  # it
        +     trace: Optional[Trace] = None,
              **rest,
          ): pass

        parameter after the positional-only ones
        - def f(self, /): pass
        + def f(self, /, trace: Optional[Trace] = None): pass

        parameter, at another place
          def f(
              trace:Optional[Trace]=None, /, more=1
          ): pass

        parameter, keyword-only
          def f(*, trace: Optional[Trace] = (None)): pass

        no function but a class
        ! it is a class, not a function
          class f: x: int

        another parameter of that name
        ! the function has another parameter of that name: `trace=None`
          def f(trace=None): pass

        another keyword-only parameter of that name
        ! the function has another parameter of that name: `trace: Optional[Trace]`
          def f(*, trace: Optional[Trace]): pass
    """,
    AddParameter(FILE, "f", "trace=None", note="given if asked"): """
        the comment above it
          async def f(
              self,
              index: int,  # of the choice
        +     # agentcore-patch: given if asked
        +     trace=None,
          ) -> None:
              pass
    """,
}

DESCRIBED: Words = {
    PARAMETER: "parameter `trace: Optional[Trace] = None`",
}

MALFORMED: Words = {
    AddParameter(FILE, "f", "trace"): "`trace` is not one parameter with a default",
    AddParameter(
        FILE, "f", "a=1, b=2"
    ): "`a=1, b=2` is not one parameter with a default",
    AddParameter(FILE, "f", "**rest"): "`**rest` is not one parameter with a default",
    AddParameter(FILE, "f", ""): "`` is not one parameter with a default",
    AddParameter(
        FILE, "f", "a="
    ): "`def _(a=): ...` cannot be parsed as one statement: ",
}
