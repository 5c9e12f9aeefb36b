"""Find SGLang without importing it, with its version and its wheel's hashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from agentcore_patches.disk.filesystem import read_bytes
from agentcore_patches.disk.privileges import rights_of_owner
from agentcore_patches.errors import AccessError, UnsupportedTarget, UsageError
from agentcore_patches.installs.interpreters import Look, ask, look_here
from agentcore_patches.installs.metadata import dist_info_of, hex_digest, read_record
from agentcore_patches.installs.versions import (
    refuse_unsupported,
    supported_release,
    version_of,
)

StrPath: TypeAlias = str | os.PathLike[str]

_NAME_ANOTHER = (
    "Name another interpreter with --python, or SGLang's package folder with "
    "--sglang-dir."
)


@dataclass(frozen=True)
class Install:
    """One SGLang on disk.

    Attributes:
        package: the `sglang` folder.
        version: as the install states it; UNKNOWN if it does not.
        release: the supported release that has the same sources; None if there is none,
            so that it cannot be patched.
        found: how it was found, in a few words.
        editable: whether `dist_info` is in another folder than the package, so that its
            RECORD does not list the package's files.
        dist_info: the folder with the metadata; None if there is none.
    """

    package: Path
    version: str
    release: str | None
    found: str
    editable: bool
    dist_info: Path | None

    def require_release(self) -> str:
        """Return the release, or raise UnsupportedTarget."""
        return self.release or refuse_unsupported(self.version, self.package)

    def wheel_hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """SHA-256 (hex) that the wheel's RECORD has for paths below the package.

        Paths that it does not list are left out; all of them for an editable install.
        """
        if self.dist_info is None or self.editable:
            return {}
        wanted = {f"{self.package.name}/{path}": path for path in paths}
        return {
            wanted[name]: hex_digest(digest)
            for name, digest in read_record(self.dist_info)
            if name in wanted
        }


def find(sglang_dir: StrPath | None = None, python: StrPath | None = None) -> Install:
    """Find the SGLang in a folder, of another interpreter, or of this interpreter.

    `Install.require_release` checks whether it may be patched.

    Raises:
        UsageError: both a folder and an interpreter were given.
        UnsupportedTarget: there is no SGLang.
        AccessError: it exists but cannot be read.
    """
    refuse_both(sglang_dir, python)
    try:
        if sglang_dir is not None:
            package = _in_folder(expand_user(sglang_dir))
            search: tuple[str, ...] = ()
            found = "given by --sglang-dir"
        else:
            exe = sys.executable if python is None else str(Path(python))
            seen = look_here() if python is None else ask(expand_user(python))
            search, found = seen.search, f"imported by {exe}"
            package = _package_of(seen, exe)
        dist_info, editable = dist_info_of(package, search)
        version = version_of(package, dist_info)
    except OSError as error:
        raise AccessError(
            f"Cannot read {error.filename}: {error.strerror}.",
            hint="Run the command as a user who may read SGLang's files.",
        ) from error
    release = supported_release(version)
    return Install(package, version, release, found, editable, dist_info)


def refuse_both(sglang_dir: object, python: object) -> None:
    if sglang_dir is not None and python is not None:
        raise UsageError("Give either --sglang-dir or --python, not both.")


def pristine(install: Install, hashes: Mapping[str, str]) -> dict[str, bool | None]:
    """Compare files (SHA-256 by path) with the wheel; None if unknown."""
    wheel = install.wheel_hashes(hashes)
    return {
        path: wheel[path] == digest if path in wheel else None
        for path, digest in hashes.items()
    }


def read_texts(install: Install, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the existing files by path, or raise AccessError."""
    texts = {}
    try:
        with rights_of_owner(install.package):
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    texts[path] = read_bytes(install.package / path, follow=True)
    except OSError as error:
        raise AccessError(
            f"Cannot read {error.filename}: {error.strerror}. Nothing was changed.",
            hint="Run the command as a user who may read SGLang's files.",
        ) from error
    return texts


def expand_user(path: StrPath) -> Path:
    """Expand `~` to the home folder, unless there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path's raises then.


def _in_folder(folder: Path) -> Path:
    try:
        package = folder.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise UnsupportedTarget(
            f"There is no folder {folder}.",
            hint="--sglang-dir is the `sglang` package folder, "
            "the one that holds `srt/`.",
        ) from None
    except RuntimeError:  # Python 3.12 and older; newer ones raise OSError
        raise AccessError(
            f"{folder} cannot be read: it is a loop of symbolic links."
        ) from None
    if _is_package(package):
        return package
    likely = [
        package / "sglang",
        package / "python" / "sglang",
        *package.glob("lib/python3*/site-packages/sglang"),
        package.parent,
    ]
    likely_place = next((place for place in likely if _is_package(place)), None)
    advice = (
        f"Did you mean --sglang-dir {likely_place}?"
        if likely_place
        else "Give the `sglang` folder itself, the one that holds `srt/`."
    )
    raise UnsupportedTarget(f"{package} is not SGLang's package folder.", hint=advice)


def _is_package(folder: Path) -> bool:
    return (folder / "srt").is_dir() and folder.name != "srt"


def _package_of(seen: Look, python: str) -> Path:
    if seen.origin is None:
        _refuse_absent(python)
    package = Path(seen.origin).resolve().parent
    if not _is_package(package):
        raise UnsupportedTarget(
            f"{python} imports `sglang` from {seen.origin}, which is not the SGLang "
            f"server: there is no `srt/` in its folder.",
            hint=_NAME_ANOTHER,
        )
    return package


def _refuse_absent(python: str) -> NoReturn:
    """Raise an error: an interpreter has no SGLang. Its hint suggests what to do."""
    other = _neighbour(python)
    if other:
        raise UnsupportedTarget(
            f"{python} has no SGLang, but {other} has.",
            hint=f"Add `--python {other}`.",
        )
    raise UnsupportedTarget(f"{python} has no SGLang.", hint=_NAME_ANOTHER)


def _neighbour(python: str) -> Path | None:
    """Return the interpreter of a nearby environment that has an SGLang."""
    environments = (
        ".venv",
        os.environ.get("VIRTUAL_ENV"),
        os.environ.get("CONDA_PREFIX"),
    )
    for environment in filter(None, environments):
        candidate = Path(environment) / "bin" / "python"
        if candidate.is_file() and candidate != Path(python):
            with suppress(UnsupportedTarget):
                origin = ask(candidate).origin
                if origin is not None and _is_package(Path(origin).parent):
                    return candidate
    return None
