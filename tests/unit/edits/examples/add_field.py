"""Fields go below the last one that a class declares."""

from __future__ import annotations

from agentcore_patches.edits import AddField
from tests.unit.edits.tables import FILE, Examples, Words

FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")
NAMED = AddField(
    FILE,
    "Answer",
    "n: int = 0",
    name="tito/fields",
    note="how many there are, as counted by the engine, which knows it best",
)
SEVERAL = AddField(
    FILE,
    "Answer",
    """
a: int = 0
# About b.
b: Optional[List[int]] = Field(
    default=None,
)
""",
    name="tito/more",
)
NATIVE = AddField(
    FILE,
    "Answer",
    "a: Optional[int] = None\nb: Optional[bool] = None",
    native="a: int = 0\nb: bool = False",
    name="tito/null",
)

EXAMPLES: Examples = {
    FIELD: """
        field after the only one
          class Answer:
              text: str
        +     ids: Optional[List[int]] = None

        field before the methods, in the class of that name only
          @dataclass
          class Answer(Base):
              '''An answer.'''

              text: str  # what is said

              # How it ended.
              reason: str = ""
        +     ids: Optional[List[int]] = None

              @property
              def length(self):
                  size: int = len(self.text)
                  return size


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
              def length(self):
                  return len(self.text)
              @length.setter
              def length(self, value):
                  pass
              class Inner:
                  text: str

        field after one of several lines
          class Answer:
              text: str = field(
                  default="",  # nothing said
              )
        +     ids: Optional[List[int]] = None
              x = 1

        field, laid out in another way
          class Answer:
              text: str
              ids : Optional[ List[int] ]=None  # somebody's
              more: str

        no class
        ! `Answer` is not defined

        class found twice
        ! `Answer` is defined 2 times
          class Answer:
              text: str
          class Answer:
              text: str

        class under a condition
        ! `Answer` is not defined
          if True:
              class Answer:
                  text: str

        another field of that name
        ! the class has another field of that name: `ids: list = None`
          class Answer:
              ids: list = None

        class without fields
        ! the class declares no fields
          class Answer:
              text = 1

        class on one line
        ! the class declares no fields
          class Answer: text: str
    """,
    NAMED: """
        field with a name, and a reason that gets a line of its own
          class Answer:
              text: str
        +     # agentcore-patch: tito/fields
        +     # how many there are, as counted by the engine, which knows it best
        +     n: int = 0

        named field that is there, without the comment
          class Answer:
              n: int = 0

        another field of the name of a named one
        ! the class has another field of that name: `n: int`
          class Answer:
              n: int
    """,
    SEVERAL: """
        several fields
          class Answer:
              text: str
        +     # agentcore-patch: tito/more
        +     a: int = 0
        +     # About b.
        +     b: Optional[List[int]] = Field(
        +         default=None,
        +     )

              def f(self): pass

        several fields that are there, in another order
          class Answer:
              b: Optional[List[int]] = Field(default=None)
              text: str
              a: int = 0

        some of several fields
        ! the class has some of these fields, but not all
          class Answer:
              a: int = 0

        another field of the name of one of several
        ! the class has another field of that name: `b: str = ""`
          class Answer:
              a: int = 0
              b: str = ""
    """,
    NATIVE: """
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

        a native field beside ours
        ! the class has some of these fields, but not all
          class Answer:
              a: int = 0
              b: Optional[bool] = None

        a native field that is there twice
        ! the class has another field of that name: `a: int = 0`
          class Answer:
              a: int = 0
              b: bool = False
              a: int = 0

        ours, and a native field of one of the names
        ! the class has some of these fields, but not all
          class Answer:
              a: Optional[int] = None
              b: Optional[bool] = None
              a: int = 0

        a field that is neither native nor ours
        ! the class has another field of that name: `b: bool = True`
          class Answer:
              a: int = 0
              b: bool = True
    """,
    AddField(FILE, "Outer.Answer", "n: int = 0"): """
        field of a class in a class
          class Answer:
              text: str

          class Outer:
              class Answer:
                  text: str
        +         n: int = 0
                  class Answer: text: str

        no class in the class
        ! `Answer` is not defined
          class Outer:
              text: str
          class Answer:
              text: str
    """,
    AddField(FILE, "Answer", 'kind: str = "a"'): """
        field, with other quotes
          class Answer:
              kind: str = 'a'
    """,
}

DESCRIBED: Words = {
    FIELD: "the field `ids`",
    SEVERAL: "the fields `a`, `b`",
}

MALFORMED: Words = {
    AddField(FILE, "Answer", "ids = None"): "`ids = None` does not declare fields",
    AddField(FILE, "Answer", "a: int = 0; b: int = 0"): (
        "`a: int = 0; b: int = 0` does not declare fields"
    ),
    AddField(FILE, "Answer", "self.ids: int = 0"): (
        "`self.ids: int = 0` does not declare fields"
    ),
    AddField(
        FILE, "Answer", "ids: int = "
    ): "`ids: int =` cannot be parsed as Python: ",
    AddField(FILE, "Answer", ""): "its new code has no statement",
    AddField(FILE, "Answer", "a: int = 0", native="b: int = 0"): (
        "`native` does not declare the same fields"
    ),
    AddField(FILE, "", "ids: int = 0"): "the scope `` is not a dotted name",
    AddField(
        FILE, "Answer.", "ids: int = 0"
    ): "the scope `Answer.` is not a dotted name",
}
