"""An import for the other edits of a file, where isort would put it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from agentcore_patches.edits.base import SourceEdit
from agentcore_patches.edits.bindings import is_bound
from agentcore_patches.edits.matching import CannotPlace
from agentcore_patches.edits.place import SourceFile, end_line, first_line


@dataclass(frozen=True)
class Import(SourceEdit):
    """`from module import name` among the imports of a file, for its other edits."""

    module: str
    imported: str

    def describe(self) -> str:
        return f"import of `{self.imported}`"

    def apply(self, source: SourceFile) -> bool:
        if is_bound(self.imported, source.tree.body, self._line()):
            return False
        start, end, names = self._joined(source)
        source.splice(start, end, self._line(*names) + source.newline)
        return True

    def _line(self, *others: str) -> str:
        """Return the line, which also imports other names; its comment is at its end."""
        names = ", ".join(sorted([self.imported, *others]))
        comment = "".join(f"  {line}" for line in self.comment)
        return f"from {self.module} import {names}{comment}"

    def _joined(self, source: SourceFile) -> tuple[int, int, list[str]]:
        """Return the lines to replace, and the names that these import.

        isort would join a line of plain names from the same module.
        """
        for node in source.tree.body:
            match node:
                case ast.ImportFrom(module=self.module, names=names, level=0):
                    others = [name.name for name in names]
                    start, end = first_line(node), end_line(node)
                    line = "".join(source.lines[start:end]).rstrip()
                    plain = f"from {self.module} import {', '.join(others)}"
                    if line == plain and plain.islower():
                        return start, end, others
        place = self._place(source)
        return place, place, []

    def _place(self, source: SourceFile) -> int:
        """Return the line of the first import from the same package, as isort does.

        Without such an import, it is the first one that isort puts later.
        """
        sorted_below: ast.stmt | None = None
        root = self.module.partition(".")[0]
        for node in source.tree.body:
            module = (isinstance(node, ast.ImportFrom) and node.module) or ""
            if "isort: skip" in source.lines[first_line(node)]:
                continue
            if f"{module}.".startswith(f"{self.module}."):
                return _start_of_comment(source, node)
            if module.partition(".")[0] == root and module > self.module:
                sorted_below = sorted_below or node
        if sorted_below is None:
            raise CannotPlace(f"the file imports nothing of `{root}`")
        return _start_of_comment(source, sorted_below)


def _start_of_comment(source: SourceFile, node: ast.stmt) -> int:
    """Return the first line of the comment above a statement, or of the statement.

    A comment at the top of a file belongs to the whole file.
    """
    start = first_line(node)
    above = [end_line(other) for other in source.tree.body]
    end_of_last = max((end for end in above if end <= start), default=0)
    first = start
    while first > end_of_last and source.lines[first - 1].startswith("#"):
        first -= 1
    return first or start
