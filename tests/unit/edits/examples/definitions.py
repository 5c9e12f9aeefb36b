"""Edits of classes and functions: fields, methods, parameters, decorators."""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddMethod, Decorate
from tests.unit.edits.tables import FILE, Examples, Words

EXAMPLES: Examples = {
    AddField(FILE, "Answer", "ids: Optional[List[int]] = None"): """
        field before the methods, in the class of that name only
          @dataclass
          class Answer(Base):
              '''An answer.'''

              text: str  # what is said

              # How it ended.
              reason: str = ""
        +     ids: Optional[List[int]] = None

              def length(self):
                  size: int = len(self.text)
          class Other:
              text: str
        field between methods, whatever these are
          class Answer:
              def first(self): return "first"  # on one line
              # Of the field.
              text: str
        +     ids: Optional[List[int]] = None

              # Of the property.
              @property
              def length(self): pass
              class Inner:
                  text: str
        field, laid out in another way
          class Answer:
              text: str
              ids : Optional[ List[int] ]=None  # somebody's
              more: str
        class found twice
        ! `Answer` is defined 2 times
          class Answer: text: str
          class Answer: text: str
        class under a condition
        ! `Answer` is not defined
          if True:
              class Answer: text: str
        another field of that name
        ! the class has another field of that name: `ids: list = None`
          class Answer:
              ids: list = None
        class without fields
        ! the class declares no fields
          class Answer:
              text = 1
    """,
    AddField(
        FILE,
        "Answer",
        "n: int = 0",
        name="tito/fields",
        note="how many there are, as counted by the engine, which knows it best",
    ): """
        field with a name, and a reason that gets a line of its own
          class Answer:
              text: str
        +     # agentcore-patch: tito/fields
        +     # how many there are, as counted by the engine, which knows it best
        +     n: int = 0
    """,
    AddField(
        FILE,
        "Answer",
        "a: int = 0\n# About b.\nb: Optional[int] = Field(\n    default=None,\n)",
        name="tito/more",
    ): """
        several fields
          class Answer:
              text: str
        +     # agentcore-patch: tito/more
        +     a: int = 0
        +     # About b.
        +     b: Optional[int] = Field(
        +         default=None,
        +     )

              def f(self): pass
    """,
    AddField(
        FILE,
        "Answer",
        "a: Optional[int] = None\nb: Optional[bool] = None",
        native="a: int = 0\nb: bool = False",
        name="tito/null",
    ): """
        fields that the class does not have
          class Answer:
              text: str
        +     # agentcore-patch: tito/null
        +     a: Optional[int] = None
        +     b: Optional[bool] = None
        native fields, each where it is
          class Answer:
        -     b: bool = False
        +     # agentcore-patch: tito/null
        +     b: Optional[bool] = None
              text: str

              # About a.
        -     a: int = 0  # none
        +     # agentcore-patch: tito/null
        +     a: Optional[int] = None  # none
              def f(self): pass
        some of the native fields
        ! the class has some of these fields, but not all
          class Answer:
              a: int = 0
        a field that is neither native nor ours
        ! the class has another field of that name: `b: bool = True`
          class Answer:
              a: int = 0
              b: bool = True
    """,
    AddMethod(
        FILE, "Answer", "def method(self):\n    return self\n", note="itself"
    ): """
        method below the others
          class Answer:
              def f(self):
                  pass
        +
        +     # agentcore-patch: itself
        +     def method(self):
        +         return self

          x = Answer()
        method of a class on whose last line the file goes on
          class Answer(
              Base
          ):
            x = 1
        +
        +   # agentcore-patch: itself
        +   def method(self):
        +       return self
          class Other: pass
        method that is there, laid out in another way
          class Answer:
              def method( self ): return (self)
        another method of that name
        ! there is another `method`
          class Answer:
              def method(self): return None
        an attribute of that name
        ! there is another `method`
          class Answer:
              if True:
                  first, (method, last) = 1, (2, 3)
        no class but a function
        ! it is a function, not a class
          def Answer():
              pass
        class with its body on the last line of its header
        ! its body is on the line of its header
          class Answer(
              Base
          ): x = 1; y = 2
    """,
    AddMethod(
        FILE,
        "Outer.Answer",
        'async def method(self):\n    """Twice.\n\n    Or none.\n    """',
    ): '''
        method with a blank line in its docstring, of a class in a class
          class Outer:
              class Answer:
                  x = 1
        +
        +         async def method(self):
        +             """Twice.
        +
        +             Or none.
        +             """

              def method(self): pass
    ''',
    Decorate(FILE, "f", "agentcore.traces.stamped", note="why"): """
        a function without decorators
          import os

          # What it is.
        + # agentcore-patch: why
        + @agentcore.traces.stamped
          def f(x): pass
        no function but a class
        ! it is a class, not a function
          class f: pass
    """,
    Decorate(FILE, "A.f", 'agentcore.wrap(kind="chat")'): """
        a method that has decorators
          class A:
              @other
              def g(self): pass
              # What it is.
        +     @agentcore.wrap(kind="chat")
              @staticmethod
              def f(): pass
    """,
}

MALFORMED: Words = {
    AddField(FILE, "Answer", "ids = None"): "`ids = None` does not declare fields",
    AddField(FILE, "Answer", "a: int = 0; b: int = 0"): "`a: int = 0; b: int = 0` does not declare fields",
    AddField(FILE, "Answer", ""): "its new code has no statement",
    AddField(FILE, "Answer", "a: int = 0", native="b: int = 0"): "`native` does not declare the same fields",
    AddField(FILE, "", "ids: int = 0"): "the scope `` is not a dotted name",
    AddMethod(FILE, "Answer", "len"): "`len` is not one function",
    AddMethod(FILE, "Answer", "def f(): 1\nx = 1"): "`def f(): 1` is not one function",
    Decorate(FILE, "f", "@stamped"): "`@stamped` cannot be parsed as an expression: ",
    Decorate(FILE, "f()", "stamped"): "the scope `f()` is not a dotted name",
}  # fmt: skip
