"""The few kinds of edit, on libcst: each finds its place by scope, then by shape.

A *scope* is a dotted path of definitions (`OpenAIServingChat._build_chat_response`). A
*shape* is Python source that one statement must equal, apart from spacing, comments and
parentheses; in it, `...` matches anything and a capture (`$CHUNK`) matches an expression
that the new code may use.

Only the definitions that edits name are parsed and printed again; every other byte of a
file is left alone.
"""

from __future__ import annotations

from agentcore_patches.edits.base import Edit as Edit
from agentcore_patches.edits.base import ScopedEdit as ScopedEdit
from agentcore_patches.edits.cst_tools import OWNER as OWNER
from agentcore_patches.edits.kinds import AddCondition as AddCondition
from agentcore_patches.edits.kinds import AddField as AddField
from agentcore_patches.edits.kinds import AddKeyword as AddKeyword
from agentcore_patches.edits.kinds import AddMethod as AddMethod
from agentcore_patches.edits.kinds import Check as Check
from agentcore_patches.edits.kinds import Decorate as Decorate
from agentcore_patches.edits.kinds import Expect as Expect
from agentcore_patches.edits.kinds import Import as Import
from agentcore_patches.edits.kinds import Insert as Insert
from agentcore_patches.edits.kinds import Land as Land
from agentcore_patches.edits.kinds import RefuseDefinition as RefuseDefinition
from agentcore_patches.edits.kinds import RefuseField as RefuseField
from agentcore_patches.edits.kinds import Replace as Replace
from agentcore_patches.edits.matching import InvalidEdit as InvalidEdit
from agentcore_patches.edits.source import apply_edits as apply_edits
from agentcore_patches.edits.source import decode as decode
from agentcore_patches.edits.source import parse as parse
from agentcore_patches.edits.unneeded import DEFINITIONS as DEFINITIONS
