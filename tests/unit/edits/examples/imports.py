"""An import goes above the first one from the same package."""

from __future__ import annotations

from agentcore_patches.edits import Import
from tests.unit.edits.tables import FILE, Examples

EXAMPLES: Examples = {
    Import(FILE, "sglang.srt", "agentcore", name="hooks", note="calls"): """
        above the first import from the package
          import os
          from sglang.srt_kernel import x
          from sglang.utils import y

        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.srt.managers.io_struct import (
              A,
              B,
          )
          from sglang.srt.server_args import ServerArgs

          x = 1
        on the line that imports others from the package itself
          from __future__ import annotations
        - from sglang.srt import about, other
        + from sglang.srt import about, agentcore, other  # agentcore-patch: hooks: calls
          import zlib
        above an import from the package itself that is not on one line, or has a comment
          import os
        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.srt import other  # somebody's
          from sglang.srt import (
              yet,
          )
        above the first import that isort puts below it, where none is from the package
          import os
          from sglang.lang import x
        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.utils import y
          import zlib
        below an import that isort skips
          import os

          from sglang.srt.x import y  # isort: skip
          y()
        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.srt.w import x
        above the comment of the first import from the package
          '''What this is.'''
          import os

        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          # isort: off
          # These first.
          from sglang.srt.x import y
        below a comment at the top of the file
          #!/usr/bin/env python
          # Copyright.
        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.srt.x import y
        above the first import from the package, where others and definitions are above
          import os
          if os:
              from sglang.srt.z import z
          def f(): pass
          import zlib
        + from sglang.srt import agentcore  # agentcore-patch: hooks: calls
          from sglang.srt.x import y
        there is such an import, with others
          from sglang.srt import (
              about,
              agentcore,
          )
        others may bind the name where they are alone with it
          from sglang.srt import agentcore
          class A:
              agentcore = 1
          def f(agentcore):
              return lambda agentcore: [x for agentcore in x]
        no import from the package
        ! the file imports nothing of `sglang`
          import os
          def f():
              from sglang.srt.x import y
    """
}
