"""The version of this package, known without reading installed metadata."""

from __future__ import annotations

__version__ = "0.2.0"
