"""Stand-in for `sgl_kernel`, which cannot be imported without libcuda.

Many modules of SGLang import names from it, but on the CPU path used here none is
called. Python imports this file at the start of every process of the server, because its
folder is on PYTHONPATH; it uses only the standard library.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "sgl_kernel"

OPERATORS = (
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_sigmoid_mul_cpu",
)
"""Operators of PyTorch that models of v0.5.23 name where they are imported. Not all that
there are: SGLang looks for others to see whether it may call them."""


class _Attributes(type):
    """Makes unknown attributes of a class None, such as `scalar_types.uint4`."""

    def __getattr__(cls, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _StandIn(ModuleType):
    """A module with every name: capitalised ones are classes, others functions that raise."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        where = f"{self.__name__}.{name}"
        if name[0].isupper() or name == "scalar_types":
            value: Any = _Attributes(name, (), {})
        else:

            def value(*args: object, **kwargs: object) -> None:
                raise RuntimeError(f"{where} is not available without CUDA")

        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `sgl_kernel` and its submodules before the real ones are found."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        # SGLang imports PyTorch first.
        torch = sys.modules.get("torch")
        if module.__name__ == PACKAGE and torch is not None:
            for operator in OPERATORS:
                setattr(torch.ops.sgl_kernel, operator, getattr(module, operator))


def _run_hidden_sitecustomize() -> None:
    """Run the `sitecustomize` that this one shadows, if there is one."""
    here = Path(__file__).resolve().parent
    path = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_run_hidden_sitecustomize()
