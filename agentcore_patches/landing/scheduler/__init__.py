"""Code that runs in the scheduler of each rank."""

from __future__ import annotations

from . import requests as requests
from . import weight_updates as weight_updates
from . import weight_versions as weight_versions
