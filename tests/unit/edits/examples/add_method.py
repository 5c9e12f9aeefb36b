"""A method goes to the end of its class."""

from __future__ import annotations

from agentcore_patches.edits import AddMethod
from tests.unit.edits.tables import FILE, Examples, Words

METHOD = AddMethod(
    FILE, "Answer", "def method(self):\n    return self\n", note="itself"
)
DOCUMENTED = AddMethod(
    FILE,
    "Answer",
    '''
async def method(self):
    """Twice each of them.

    Or none.
    """
    return [2 * value for value in self]
''',
)

EXAMPLES: Examples = {
    METHOD: """
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

        method among tabs
          class Answer:
          \t@property
          \tdef f(self): pass
        +
        + \t# agentcore-patch: itself
        + \tdef method(self):
        + \t    return self

          x = 1

        method that is there, laid out in another way
          class Answer:
              def method( self ): return (self)

        method that is there, not at the end
          class Answer:
              def method(self):
                  return self
              x = 1

        the method twice
        ! there is another `method`
          class Answer:
              def method(self): return self
              def method(self): return self

        another method of that name
        ! there is another `method`
          class Answer:
              def method(self):
                  return None

        an attribute of that name
        ! there is another `method`
          class Answer:
              if True:
                  first, (method, last) = 1, (2, 3)

        no class but a function
        ! it is a function, not a class
          def Answer():
              pass

        class on one line
        ! its body is on the line of its header
          class Answer: pass

        class with its body on the last line of its header
        ! its body is on the line of its header
          class Answer(
              Base
          ): x = 1; y = 2
    """,
    DOCUMENTED: '''
        method with blank lines and a docstring
          class Answer:
              x = 1
        +
        +     async def method(self):
        +         """Twice each of them.
        +
        +         Or none.
        +         """
        +         return [2 * value for value in self]

          x = 1
    ''',
    AddMethod(FILE, "Outer.Answer", "def method(self):\n    return self"): """
        method of a class in a class
          class Outer:
              class Answer:
                  x = 1
        +
        +         def method(self):
        +             return self

              def method(self):
                  return None
    """,
}

DESCRIBED: Words = {
    METHOD: "definition of `method`",
    DOCUMENTED: "definition of `method`",
}

MALFORMED: Words = {
    AddMethod(FILE, "Answer", "len"): "`len` is not one function",
    AddMethod(FILE, "Answer", "class A: pass"): "`class A: pass` is not one function",
    AddMethod(FILE, "Answer", "def f(): 1\nx = 1"): "`def f(): 1` is not one function",
    AddMethod(FILE, "Answer", "def f("): "`def f(` is not one function",
    AddMethod(FILE, "Answer", ""): "`` is not one function",
}
