"""Find SGLang without importing it, with its version and its wheel's hashes."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from agentcore_patches.errors import AccessError, UnsupportedTarget, UsageError
from agentcore_patches.files import FOLDER, read_bytes
from agentcore_patches.patches import registry
from agentcore_patches.patches.files import LANDED, LANDING
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.rights import rights_of_owner
from agentcore_patches.typed_json import parse

if TYPE_CHECKING:
    from packaging.version import Version

StrPath: TypeAlias = str | os.PathLike[str]

_PROBE = """
import json, sys
{look}
sys.path[:] = [entry for entry in sys.path if entry]
print("\\nagentcore-patch:", json.dumps({{**look(), "path": sys.path}}))
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
    """There is no SGLang, but a folder with leftovers; `install` stands for that."""

    def __init__(self, message: str, install: Install) -> None:
        super().__init__(message)
        self.install = install


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
            wanted[name]: _hex(digest)
            for name, digest in _read_record(self.dist_info)
            if name in wanted
        }


def find(sglang_dir: StrPath | None = None, python: StrPath | None = None) -> Install:
    """The SGLang in a folder, of another interpreter, or of this interpreter.

    Whether it may be patched is what `require_release` tells.

    Raises:
        UsageError: both a folder and an interpreter were given.
        OnlyLeftovers: there is no SGLang, only a folder with agentcore-patch's files.
        UnsupportedTarget: there is no SGLang.
        AccessError: it is there but cannot be read.
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
            seen = _look() if python is None else _ask(expand_user(python))
            search, found = seen.search, f"imported by {exe}"
            leftovers = _leftovers(seen)
            package = _package_of(seen, leftovers, exe)
        dist_info, editable = _dist_info(package, search)
        version = _version(package, dist_info)
    except OSError as error:
        raise AccessError(
            f"Cannot read {error.filename}: {error.strerror}. Run the command as a "
            "user who may read SGLang's files."
        ) from error
    release = _supported_release(version)
    return Install(package, version, release, found, editable, dist_info, leftovers)


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
    """True if two versions differ in their local labels at most (`0.5.9+cu130`)."""
    return one.partition("+")[0] == other.partition("+")[0]


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
    raise UnsupportedTarget(f"{package} is not SGLang's package folder. {advice}")


def _is_package(folder: Path) -> bool:
    return (folder / "srt").is_dir() and folder.name != "srt"


@dataclass(frozen=True)
class _Look:
    """Reply of an interpreter about `sglang`.

    Attributes:
        origin: the file of the first module or regular package; None if there is none.
        hiding: the folders of the namespace package that Python finds before it.
        search: the search path.
    """

    origin: str | None
    hiding: list[str]
    search: list[str]


def look() -> dict[str, object]:
    """Find `sglang` without importing it. Every interpreter that is asked runs this, too.

    An import takes the first finder's package, even a namespace package (a folder without
    `__init__.py`). An editable install may have a finder behind that.
    """
    import sys

    hiding: list[str] = []
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec("sglang", None)
        except (AttributeError, ImportError, ValueError):
            continue
        if spec is not None and spec.origin is not None:
            return {"origin": spec.origin, "hiding": hiding}
        if spec is not None:
            hiding += spec.submodule_search_locations or ()
    return {"origin": None, "hiding": hiding}


def _look() -> _Look:
    """Look with this interpreter."""
    return _look_from({**look(), "path": sys.path})


def _look_from(answer: object) -> _Look:
    """The answer of `look`, with the search path as `path`.

    Raises:
        ValueError: it is none.
    """
    match answer:
        case {
            "origin": str() | None as origin,
            "hiding": [*hiding],
            "path": [*search],
        }:
            texts = [origin or "", *hiding, *search]
            if all(isinstance(text, str) and "\0" not in text for text in texts):
                return _Look(origin, hiding, search)
    raise ValueError("no answer")


def _leftovers(seen: _Look) -> tuple[Leftovers, ...]:
    """Folders with leftovers in the search path."""
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


def _ask(python: Path) -> _Look:
    """Look with another interpreter."""
    import inspect
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
        # In the root folder, so that it does not import from the current one; without
        # bytecode, so that a question leaves nothing behind.
        answer = subprocess.run(
            [
                *(Path(command).absolute(), "-B", "-c"),
                _PROBE.format(look=inspect.getsource(look)),
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=True,
        )
        return _answer(answer.stdout)
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


def _answer(printed: str) -> _Look:
    """Extract the probe's output from everything that the interpreter printed.

    Raises:
        ValueError: it did not, or something else.
    """
    lines = [line for line in printed.splitlines() if line.startswith(_ANSWER)]
    answer = parse(lines[-1].removeprefix(_ANSWER).encode()) if lines else None
    return _look_from(answer)


def _package_of(seen: _Look, leftovers: Sequence[Leftovers], python: str) -> Path:
    """The package folder that an interpreter imports, or would without leftovers."""
    if seen.origin is None:
        _refuse_absent(leftovers, python)
    package = Path(seen.origin).resolve().parent
    if not _is_package(package):
        raise UnsupportedTarget(
            f"{python} imports `sglang` from {seen.origin}, which is not the SGLang "
            f"server: there is no `srt/` in its folder. {_NAME_ANOTHER}"
        )
    known = [entry.folder for entry in leftovers]
    for folder in seen.hiding:
        if Path(folder).resolve() not in known or Path(folder).is_symlink():
            raise UnsupportedTarget(
                f"{python} imports `sglang` from the folder {folder}, which holds no "
                f"SGLang and hides the one in {package}. Move that folder away, or "
                "rename it."
            )
    return package


def _refuse_absent(leftovers: Sequence[Leftovers], python: str) -> NoReturn:
    """Say that an interpreter has no SGLang, and what to do."""
    if leftovers:
        raise _only_leftovers(leftovers, f"imported by {python}")
    other = _neighbour(python)
    raise UnsupportedTarget(
        f"{python} has no SGLang, but {other} has. Add `--python {other}`."
        if other
        else f"{python} has no SGLang. {_NAME_ANOTHER}"
    )


def _only_leftovers(leftovers: Sequence[Leftovers], found: str) -> OnlyLeftovers:
    folder = leftovers[0].folder
    return OnlyLeftovers(
        f"There is no SGLang in {folder}: it was uninstalled, and only the files that "
        "agentcore-patch had added are left. `agentcore-patch revert` removes them.",
        Install(folder, UNKNOWN, None, found, False, None, tuple(leftovers)),
    )


def _neighbour(python: str) -> Path | None:
    """The interpreter of an environment at hand that has an SGLang."""
    environments = (
        ".venv",
        os.environ.get("VIRTUAL_ENV"),
        os.environ.get("CONDA_PREFIX"),
    )
    for environment in filter(None, environments):
        candidate = Path(environment) / "bin" / "python"
        if candidate.is_file() and candidate != Path(python):
            with suppress(UnsupportedTarget):
                origin = _ask(candidate).origin
                if origin is not None and _is_package(Path(origin).parent):
                    return candidate
    return None


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
    """True if a version stands for the sources of a release, maybe changed locally.

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
