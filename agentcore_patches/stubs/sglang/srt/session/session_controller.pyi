from typing import Any

class Session:  # since 0.5.11
    req_nodes: dict[str, Any]
