"""Find SGLang without importing it, with its version and its wheel's hashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from agentcore_patches.errors import AccessError, UnsupportedTarget, UsageError
from agentcore_patches.installs.interpreters import Look, ask, look_here
from agentcore_patches.installs.metadata import dist_info_of, hex_digest, read_record
from agentcore_patches.installs.versions import UNKNOWN, supported_release, version_of
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import LANDED, LANDING
from agentcore_patches.state.filesystem import FOLDER, read_bytes
from agentcore_patches.state.privileges import rights_of_owner

StrPath: TypeAlias = str | os.PathLike[str]

_NAME_ANOTHER = (
    "Name another interpreter with --python, or SGLang's package folder with "
    "--sglang-dir."
)


@dataclass(frozen=True)
class Leftovers:
    """A folder `sglang` without SGLang: an uninstall left only agentcore-patch's files.

    Attributes:
        folder: the folder, directly in an entry of the search path.
        hides: whether Python imports this folder, in place of any SGLang elsewhere.
        kept: files that are not agentcore-patch's own, and therefore stay.
        problem: why the folder cannot be removed; null if it can.
    """

    folder: Path
    hides: bool
    kept: tuple[str, ...] = ()
    problem: str | None = None


class OnlyLeftovers(UnsupportedTarget):
    """There is no SGLang, but a folder with leftovers, which `install` describes."""

    def __init__(self, message: str, hint: str, install: Install) -> None:
        super().__init__(message, hint)
        self.install = install


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
        leftovers: folders in which uninstalled SGLangs left agentcore-patch's files.
    """

    package: Path
    version: str
    release: str | None
    found: str
    editable: bool
    dist_info: Path | None
    leftovers: tuple[Leftovers, ...] = ()

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

    `require_release` checks whether it may be patched.

    Raises:
        UsageError: both a folder and an interpreter were given.
        OnlyLeftovers: there is no SGLang, only a folder with agentcore-patch's files.
        UnsupportedTarget: there is no SGLang.
        AccessError: it exists but cannot be read.
    """
    refuse_both(sglang_dir, python)
    try:
        if sglang_dir is not None:
            package = _in_folder(expand_user(sglang_dir))
            search: list[str] = []
            leftovers: tuple[Leftovers, ...] = ()
            found = "given by --sglang-dir"
        else:
            exe = sys.executable if python is None else str(Path(python))
            seen = look_here() if python is None else ask(expand_user(python))
            search, found = seen.search, f"imported by {exe}"
            leftovers = _leftovers(seen)
            package = _package_of(seen, leftovers, exe)
        dist_info, editable = dist_info_of(package, search)
        version = version_of(package, dist_info)
    except OSError as error:
        raise AccessError(
            f"Cannot read {error.filename}: {error.strerror}.",
            hint="Run the command as a user who may read SGLang's files.",
        ) from error
    release = supported_release(version)
    return Install(package, version, release, found, editable, dist_info, leftovers)


def refuse_both(sglang_dir: object, python: object) -> None:
    """Raise UsageError if both a folder and an interpreter were given."""
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
    """Return the present texts of files, by path; missing files are left out.

    Raises:
        AccessError: a file cannot be read.
    """
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
    if is_leftover(package):
        raise _only_leftovers([Leftovers(package, True)], "given by --sglang-dir")
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


def _leftovers(seen: Look) -> tuple[Leftovers, ...]:
    """Return the folders with leftovers in the search path."""
    places = (Path(entry) / "sglang" for entry in seen.search if entry)
    hiding = [Path(folder).resolve() for folder in seen.hiding]
    folders = dict.fromkeys(place.resolve() for place in places if is_leftover(place))
    return tuple(Leftovers(folder, folder in hiding) for folder in folders)


def is_leftover(folder: Path) -> bool:
    """True for a folder that has files of agentcore-patch and no SGLang; not for a link."""
    own = {"__init__.py", "version.py", "_version.py", *registry.WRITING_ORDER} - {
        *LANDED
    }
    return (
        not folder.is_symlink()
        and any((folder / name).is_dir() for name in (FOLDER, LANDING))
        and not any((folder / name).exists() for name in own)
    )


def _package_of(seen: Look, leftovers: Sequence[Leftovers], python: str) -> Path:
    """Return the package folder that an interpreter imports, or would without leftovers."""
    if seen.origin is None:
        _refuse_absent(leftovers, python)
    package = Path(seen.origin).resolve().parent
    if not _is_package(package):
        raise UnsupportedTarget(
            f"{python} imports `sglang` from {seen.origin}, which is not the SGLang "
            f"server: there is no `srt/` in its folder.",
            hint=_NAME_ANOTHER,
        )
    known = [entry.folder for entry in leftovers]
    for folder in seen.hiding:
        if Path(folder).resolve() not in known or Path(folder).is_symlink():
            raise UnsupportedTarget(
                f"{python} imports `sglang` from the folder {folder}, which holds no "
                f"SGLang and hides the one in {package}.",
                hint="Move that folder away, or rename it.",
            )
    return package


def _refuse_absent(leftovers: Sequence[Leftovers], python: str) -> NoReturn:
    """Raise an error: an interpreter has no SGLang. Its hint suggests what to do."""
    if leftovers:
        raise _only_leftovers(leftovers, f"imported by {python}")
    other = _neighbour(python)
    if other:
        raise UnsupportedTarget(
            f"{python} has no SGLang, but {other} has.",
            hint=f"Add `--python {other}`.",
        )
    raise UnsupportedTarget(f"{python} has no SGLang.", hint=_NAME_ANOTHER)


def _only_leftovers(leftovers: Sequence[Leftovers], found: str) -> OnlyLeftovers:
    folder = leftovers[0].folder
    return OnlyLeftovers(
        f"There is no SGLang in {folder}: it was uninstalled, and only the files that "
        "agentcore-patch had added are left.",
        "`agentcore-patch revert` removes them.",
        Install(folder, UNKNOWN, None, found, False, None, tuple(leftovers)),
    )


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
