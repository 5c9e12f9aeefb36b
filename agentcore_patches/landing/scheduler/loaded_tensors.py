"""Find the tensors of a weight update that no model takes.

Most models skip a tensor whose name they do not know, and SGLang calls the update a
success. The name alone does not tell: models rename, merge and split tensors, and skip
some on purpose. A tensor that the server's checkpoint does not have is therefore handed
over as an `Untaken`, which becomes an ordinary tensor as soon as its values are used.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import ref

logger = logging.getLogger(__name__)

# Tensors that a model may skip although its checkpoint lacks them: tied embeddings,
# tables that are computed, layers of a draft model, scales of another quantization.
_OPTIONAL = re.compile(
    r"lm_head|rotary_emb|inv_freq|_extra_state|mtp|nextn|scale|zero_point"
)


class Loaded:
    """The tensors that a weight update hands to the models.

    Attributes:
        names: names of all tensors that a model must take.
        taken: names that need no watching. A name that a model takes is added.
    """

    def __init__(self, taken: set[str]) -> None:
        self.names: dict[str, None] = {}
        self.taken = taken
        self._open: list[tuple[str, ref[Any]]] = []

    def untaken(self) -> list[str]:
        """Return the names of the tensors that no model has taken."""
        return [name for name in self.names if name not in self.taken]

    @contextmanager
    def watching(self, models: Iterable[Any]) -> Iterator[None]:
        """Watch the tensors that are loaded into models."""
        with ExitStack() as stack:
            for model in models:
                stack.enter_context(self._watching(model))
            yield

    @contextmanager
    def _watching(self, model: Any) -> Iterator[None]:
        # SGLang's loader for quantized models also replaces this method.
        own = {key: vars(model)[key] for key in ("load_weights",) if key in vars(model)}
        vars(model)["load_weights"] = self._watch(model.load_weights)
        try:
            yield
        finally:
            del vars(model)["load_weights"]
            vars(model).update(own)

    def _watch(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def load_weights(weights: Any, *args: Any, **kwargs: Any) -> Any:
            given: Any = self._hand_over(weights)
            if isinstance(weights, list):
                given = [*given]
            try:
                return load(given, *args, **kwargs)
            finally:
                del given
                self._close()

        return load_weights

    def _hand_over(self, weights: Iterable[tuple[str, Any]]) -> Iterator[Any]:
        import torch

        for name, tensor in weights:
            if not _OPTIONAL.search(name):
                self.names[name] = None
            if name in self.taken:
                yield name, tensor
            elif type(tensor) is not torch.Tensor:
                self.taken.add(name)
                yield name, tensor
            else:
                view = tensor.as_subclass(_untaken_class())
                vars(view)["taken"] = self.taken
                vars(view)["name_in_update"] = name
                self._open.append((name, ref(view)))
                yield name, view
                del view

    def _close(self) -> None:
        """Count a tensor that a model keeps as taken, and make it ordinary."""
        for _, reference in self._open:
            view = reference()
            if isinstance(view, _untaken_class()):
                _take(view)
        self._open.clear()


@cache
def _untaken_class() -> Any:
    """Return a class of tensors that note the first use of their values.

    A mode of PyTorch would miss the threads in which some models load their experts.
    """
    import torch

    class Untaken(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs)
            is_about = isinstance(result, (int, str, torch.Size, torch.dtype))
            is_about |= isinstance(result, (torch.device, torch.layout))
            if not is_about or func.__name__ in ("item", "data_ptr"):
                for one in (*args, *kwargs.values()):
                    for value in one if isinstance(one, (list, tuple)) else (one,):
                        if isinstance(value, cls):
                            _take(value)
            return result

    return Untaken


def _take(view: Any) -> None:
    import torch

    vars(view).pop("taken").add(vars(view).pop("name_in_update"))
    view.__class__ = torch.Tensor


def names_in_checkpoint(path: str) -> set[str]:
    """Return the names of the tensors in a checkpoint; empty if they cannot be read.

    Args:
        path: folder, or name on the Hugging Face Hub of a model that was downloaded.
    """
    from huggingface_hub import snapshot_download
    from safetensors import safe_open

    names: set[str] = set()
    try:
        folder = Path(path)
        if not folder.is_dir():
            folder = Path(snapshot_download(path, local_files_only=True))
        names.update(_index(folder))
        for file in () if names else folder.glob("*.safetensors"):
            with safe_open(file, framework="pt") as opened:
                names.update(opened.keys())
    except Exception as error:
        logger.warning("Cannot read the tensor names of %s: %s", path, error)
    return names


def missing_files(path: str) -> list[str]:
    """Return the files that the index of a checkpoint lists and its folder lacks."""
    folder = Path(path)
    try:
        listed = {*_index(folder).values()}
    except (OSError, ValueError, LookupError, AttributeError):
        return []
    return sorted(name for name in listed if not (folder / name).exists())


def _index(folder: Path) -> dict[str, str]:
    """Return the file of each tensor; empty without an index."""
    index = folder / "model.safetensors.index.json"
    files: dict[str, str] = {}
    if index.is_file():
        files.update(json.loads(index.read_text())["weight_map"])
    return files
