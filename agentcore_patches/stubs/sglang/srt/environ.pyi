class EnvBool:
    def get(self) -> bool: ...

class Envs:
    SGLANG_RUST_SERVER: EnvBool  # since 0.5.17

envs: Envs
