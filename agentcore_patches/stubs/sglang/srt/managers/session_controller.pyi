from typing import Any

class Session:  # until 0.5.10
    req_nodes: dict[str, Any]
