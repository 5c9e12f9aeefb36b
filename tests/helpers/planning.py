"""Plan the patches for sources, by default of the release that the suite reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.selection import Selection

VERSION = "0.5.9"


def refusal(sources: Mapping[str, bytes], patches: Sequence[str]) -> str:
    with pytest.raises(SourceConflict) as refused:
        make_plan(sources, Selection(tuple(patches), VERSION))
    return str(refused.value)
