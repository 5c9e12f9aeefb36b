"""The package that agentcore-patch adds to SGLang; its hooks in SGLang call it.

A room holds what one kind of SGLang's processes runs, an extra's folder what it adds.
"""

from __future__ import annotations

from importlib import import_module

from . import http as http
from . import release as release
from . import scheduler as scheduler
from . import shared as shared

for _extra in release.INSTALLED[1:]:
    import_module(f"{__name__}.{_extra.replace('-', '_')}")
