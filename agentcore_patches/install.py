"""Where SGLang is: found without importing it, with its version and its wheel's hashes."""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from agentcore_patches.errors import AccessError, UnsupportedTarget, UsageError
from agentcore_patches.files import read_bytes
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.rights import rights_of_owner
from agentcore_patches.typed_json import parse

if TYPE_CHECKING:
    from packaging.version import Version

StrPath: TypeAlias = str | os.PathLike[str]

_PROBE = """
import importlib.util, json, sys
sys.path[:] = [entry for entry in sys.path if entry]
spec = importlib.util.find_spec("sglang")
print("\\nagentcore-patch:", json.dumps({"origin": spec and spec.origin, "path": sys.path}))
"""
_PROBE_SECONDS = 60
_ANSWER = "agentcore-patch:"

_GIVE_AN_INTERPRETER = "Give --python an interpreter, such as /opt/venv/bin/python."
_NAME_ANOTHER = (
    "Name another interpreter with --python, or SGLang's package folder with "
    "--sglang-dir."
)

UNKNOWN = "unknown"
"""The version of an SGLang that does not tell it."""

_MOST_VERSION = 1024 * 1024
_MOST_RECORD = 64 * 1024 * 1024

# The version that setuptools-scm gives where there is no git metadata.
_PLACEHOLDER = "0.0.0.dev0"


@dataclass(frozen=True)
class Install:
    """One SGLang on disk.

    Attributes:
        package: the `sglang` folder.
        version: as the install states it; UNKNOWN if it does not.
        release: the supported release that has the same sources; None if there is none,
            and it cannot be patched.
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

    def wheel_hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """SHA-256 (hex) that the wheel's RECORD has for paths below the package.

        Paths that it does not list are left out; all of them for an editable install.
        """
        if self.dist_info is None or self.editable:
            return {}
        wanted = {f"{self.package.name}/{path}": path for path in paths}
        return {
            wanted[name]: _hex(digest)
            for name, digest in _read_record(self.dist_info)
            if name in wanted
        }


def find(sglang_dir: StrPath | None = None, python: StrPath | None = None) -> Install:
    """The SGLang in a folder, of another interpreter, or of this interpreter.

    Whether it may be patched is what `require_release` tells.

    Raises:
        UsageError: both a folder and an interpreter were given.
        UnsupportedTarget: there is no SGLang.
        AccessError: it is there but cannot be read.
    """
    refuse_both(sglang_dir, python)
    try:
        if sglang_dir is not None:
            package = _in_folder(expand_user(sglang_dir))
            search: list[str] = []
            found = "given by --sglang-dir"
        elif python is not None:
            package, search = _of_other_interpreter(expand_user(python))
            found = f"imported by {Path(python)}"
        else:
            package, search = _of_this_interpreter(), sys.path
            found = f"imported by {sys.executable}"
        dist_info, editable = _dist_info(package, search)
        version = _version(package, dist_info)
    except OSError as error:
        raise AccessError(
            f"Cannot read {error.filename}: {error.strerror}. Run the command as a "
            "user who may read SGLang's files."
        ) from error
    release = _supported_release(version)
    return Install(package, version, release, found, editable, dist_info)


def require_release(install: Install) -> str:
    """The supported release that an install has the sources of.

    Raises:
        UnsupportedTarget: there is none.
    """
    if install.release is not None:
        return install.release
    if install.version == UNKNOWN:
        raise UnsupportedTarget(
            f"The version of the SGLang in {install.package} is unknown: it is neither in "
            "`_version.py` nor in installed metadata. Install the checkout, which writes "
            f"it (without git, set SETUPTOOLS_SCM_PRETEND_VERSION={SUPPORTED_VERSIONS[-1]})."
        )
    parsed = _parsed(install.version)
    advice = (
        " This is a development version. If it is a supported release with commits of "
        "your own, install it with SETUPTOOLS_SCM_PRETEND_VERSION="
        f"{_nearest(parsed)}+own set. `agentcore-patch apply --unlisted` "
        "patches any other one that the edits of a release fit."
        if parsed is not None and (parsed.is_devrelease or parsed.is_postrelease)
        else ""
    )
    raise UnsupportedTarget(
        f"SGLang {install.version} in {install.package} is not supported. Supported: "
        f"{', '.join(SUPPORTED_VERSIONS)}.{advice}"
    )


def same_release(one: str, other: str) -> bool:
    """Whether two versions differ in their local labels at most (`0.5.9+cu130`)."""
    return one.partition("+")[0] == other.partition("+")[0]


def refuse_both(sglang_dir: object, python: object) -> None:
    """Raise UsageError if both a folder and an interpreter were given."""
    if sglang_dir is not None and python is not None:
        raise UsageError("Give either --sglang-dir or --python, not both.")


def pristine(install: Install, hashes: Mapping[str, str]) -> dict[str, bool | None]:
    """Whether files (SHA-256 by path) are as in the wheel; None if unknown."""
    wheel = install.wheel_hashes(hashes)
    return {
        path: wheel[path] == digest if path in wheel else None
        for path, digest in hashes.items()
    }


def read_texts(install: Install, paths: Iterable[str]) -> dict[str, bytes]:
    """The present texts of files, by path; files that are missing are left out.

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
            f"Cannot read {error.filename}: {error.strerror}. Nothing was changed. "
            "Run the command as a user who may read SGLang's files."
        ) from error
    return texts


def expand_user(path: StrPath) -> Path:
    """The path, with `~` as the home folder; as it is if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path's raises then.


def _in_folder(folder: Path) -> Path:
    try:
        package = folder.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise UnsupportedTarget(
            f"There is no folder {folder}. --sglang-dir is the `sglang` package folder, "
            "the one that holds `srt/`."
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
    raise UnsupportedTarget(f"{package} is not SGLang's package folder. {advice}")


def _is_package(folder: Path) -> bool:
    return (folder / "srt").is_dir() and folder.name != "srt"


def _of_this_interpreter() -> Path:
    try:
        spec = importlib.util.find_spec("sglang")
    except (ImportError, ValueError):
        spec = None
    return _package_of(spec.origin if spec else None, sys.executable)


def _of_other_interpreter(python: Path) -> tuple[Path, list[str]]:
    import shutil
    import subprocess

    command = python if python.is_file() else shutil.which(python)
    if command is None:
        inside = python / "bin" / "python"
        advice = (
            f"Did you mean --python {inside}?"
            if inside.exists()
            else _GIVE_AN_INTERPRETER
        )
        raise UnsupportedTarget(f"There is no program {python}. {advice}")
    try:
        # In the root folder, so that it does not import from the current one.
        answer = subprocess.run(
            [Path(command).absolute(), "-c", _PROBE],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=True,
        )
        origin, search = _answer(answer.stdout)
    except subprocess.TimeoutExpired:
        raise UnsupportedTarget(
            f"{python} was asked where its SGLang is and did not answer within "
            f"{_PROBE_SECONDS} s. Give SGLang's package folder with --sglang-dir instead."
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnsupportedTarget(
            f"{python} was asked where its SGLang is and failed with exit code "
            f"{error.returncode} ({last}). Give --python a Python 3 interpreter."
        ) from None
    except OSError as error:
        raise UnsupportedTarget(
            f"Cannot run {python}: {error.strerror}. {_GIVE_AN_INTERPRETER}"
        ) from None
    except ValueError:
        raise UnsupportedTarget(
            f"{python} is not a Python interpreter: it did not answer as one. "
            f"{_GIVE_AN_INTERPRETER}"
        ) from None
    return _package_of(origin, str(python)), search


def _answer(printed: str) -> tuple[str | None, list[str]]:
    """Where SGLang is, and where modules are looked for: what the probe printed of it.

    It stands among what the interpreter prints on its own.

    Raises:
        ValueError: it did not, or something else.
    """
    lines = [line for line in printed.splitlines() if line.startswith(_ANSWER)]
    answer = parse(lines[-1].removeprefix(_ANSWER).encode()) if lines else None
    match answer:
        case {"origin": str() | None as origin, "path": [*path]}:
            texts = [origin or "", *path]
            if all(isinstance(text, str) and "\0" not in text for text in texts):
                return origin, path
    raise ValueError("no answer")


def _package_of(origin: str | None, python: str) -> Path:
    """The package folder of a module spec's origin; that of a namespace package is None."""
    if origin is not None:
        package = Path(origin).resolve().parent
        if _is_package(package):
            return package
        raise UnsupportedTarget(
            f"{python} imports `sglang` from {origin}, which is not the SGLang server: "
            f"there is no `srt/` in its folder. {_NAME_ANOTHER}"
        )
    raise UnsupportedTarget(f"{python} has no SGLang. {_NAME_ANOTHER}")


def _dist_info(package: Path, search: Sequence[str]) -> tuple[Path | None, bool]:
    """The metadata folder of a package, and whether the install is editable."""
    for folder in _metadata_folders(package.parent):
        prefix = f"{package.name}/"
        if any(name.startswith(prefix) for name, _ in _read_record(folder)):
            return folder, False
    for entry in search:
        for folder in _metadata_folders(Path(entry)):
            if (folder / "METADATA").is_file():
                return folder, True
    return None, False


def _metadata_folders(site: Path) -> list[Path]:
    return sorted(site.glob("sglang-*.dist-info"))


def _read_record(dist_info: Path) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of each file in a RECORD; none if it is missing or damaged."""
    try:
        record = read_bytes(dist_info / "RECORD", follow=True, most=_MOST_RECORD)
    except FileNotFoundError:
        return
    lines = io.StringIO(record.decode("utf-8", errors="replace"), newline="")
    with suppress(csv.Error):
        for row in csv.reader(lines):
            if len(row) > 1 and row[1].startswith("sha256="):
                yield row[0], row[1]


def _hex(digest: str) -> str:
    encoded = digest.removeprefix("sha256=")
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except ValueError:
        return "damaged"


def _version(package: Path, dist_info: Path | None) -> str:
    """The version in the package, or else in its metadata."""
    stated = [
        _literal_version(package / name) for name in ("_version.py", "version.py")
    ]
    if dist_info is not None:
        stated.append(_metadata_version(dist_info / "METADATA"))
    for version in stated:
        if version is not None and version != _PLACEHOLDER and version.isprintable():
            return version[:100]
    return UNKNOWN


def _literal_version(file: Path) -> str | None:
    """The string that a module assigns to `__version__` at its top level."""
    import ast

    try:
        body = ast.parse(read_bytes(file, follow=True, most=_MOST_VERSION)).body
    except (
        *(FileNotFoundError, NotADirectoryError),
        *(SyntaxError, ValueError, RecursionError, MemoryError),
    ):
        return None
    for statement in body:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
            and any(
                isinstance(target, ast.Name) and target.id == "__version__"
                for target in statement.targets
            )
        ):
            return statement.value.value
    return None


def _metadata_version(file: Path) -> str | None:
    try:
        text = read_bytes(file, follow=True).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    header = text.replace("\r\n", "\n").partition("\n\n")[0]
    found = re.search(r"^Version:\s*(\S+)", header, re.MULTILINE)
    return found and found[1]


def _supported_release(version: str) -> str | None:
    if version in SUPPORTED_VERSIONS:
        return version
    parsed = _parsed(version)
    if parsed is None:
        return None
    from packaging.version import Version

    return next(
        (name for name in SUPPORTED_VERSIONS if _is_release(parsed, Version(name))),
        None,
    )


def _parsed(version: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version)
    except InvalidVersion:
        return None


def _nearest(version: Version) -> str:
    """The newest supported release that is no newer, else the oldest one."""
    from packaging.version import Version

    older = [name for name in SUPPORTED_VERSIONS if Version(name) <= version]
    return older[-1] if older else SUPPORTED_VERSIONS[0]


def _is_release(version: Version, release: Version) -> bool:
    """Whether a version stands for the sources of a release, maybe changed locally.

    So does one with a local label (`0.5.9+cu130`), and the versions that setuptools-scm
    gives to the tagged commit itself with uncommitted changes: zero commits after it,
    and a date (`0.5.10.dev0+g1a2b3c4.d20260301`).
    """
    if version.public == release.public:
        return True
    *head, micro = release.release
    names = (
        (f"{release.base_version}.post{release.post + 1}.dev0",)
        if release.post is not None
        else (
            f"{'.'.join(map(str, [*head, micro + 1]))}.dev0",
            f"{release.public}.post1.dev0",
            f"{release.public}.post0",
        )
    )
    dirty = re.search(r"(^|\.)d\d{8}$", version.local or "")
    return version.public in names and dirty is not None
