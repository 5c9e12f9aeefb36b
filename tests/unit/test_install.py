"""Finding SGLang, its version, and differences from its wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from agentcore_patches.errors import AccessError, UnsupportedTarget
from agentcore_patches.installs import install, interpreters, versions
from agentcore_patches.installs.install import Install, find
from tests.helpers.records import write_dist_info

ENGINE = "srt/engine.py"


def make_package(folder: Path, version: str | None = "0.5.9") -> Path:
    """Make a package folder, with a version or without."""
    (folder / "srt").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / ENGINE).write_bytes(b"ENGINE = 1\n")
    if version is not None:
        (folder / "_version.py").write_text(f"__version__ = version = {version!r}\n")
    return folder


def make_metadata(site: Path, version: str, *, of_wheel: bool = True) -> Path:
    """Write an installer's metadata; that of a wheel lists its files."""
    listed = f"sglang/{ENGINE}" if of_wheel else "__editable__.sglang.pth"
    text = (site / listed).read_bytes() if of_wheel else b""
    return write_dist_info(site, version, {listed: text})


@pytest.fixture(autouse=True)
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = ("0.5.8", "0.5.8.post1", "0.5.9")
    monkeypatch.setattr(versions, "SUPPORTED_VERSIONS", releases)


def refusal(found: Install) -> str:
    """Return why an install may not be patched."""
    with pytest.raises(UnsupportedTarget) as caught:
        found.require_release()
    return str(caught.value)


# The folder


@pytest.mark.parametrize("given", ["sglang", "link", "~/sglang"])
def test_a_package_folder_is_accepted(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path / "sglang")
    (tmp_path / "link").symlink_to(package)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert find(given) == Install(
        package, "0.5.9", "0.5.9", "given by --sglang-dir", False, None
    )


@pytest.mark.parametrize(
    ("place", "given"),
    [
        ("python/sglang", "."),
        ("lib/python3.12/site-packages/sglang", "."),
        ("sglang", "sglang/srt"),
    ],
)
def test_a_nearby_folder_is_refused_with_a_suggestion(
    place: str, given: str, tmp_path: Path
) -> None:
    package = make_package(tmp_path / place)
    with pytest.raises(UnsupportedTarget, match=rf"mean --sglang-dir {package}\?"):
        find(tmp_path / given)


def test_any_other_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for given, said in (
        (tmp_path, "that holds `srt/`"),
        (tmp_path / "missing", "no folder"),
        ("~no-such-user/sglang", "no folder"),
        (tmp_path / "file", None),
    ):
        with pytest.raises(UnsupportedTarget, match=said):
            find(given)
    (tmp_path / "sglang").symlink_to(tmp_path / "sglang")
    with pytest.raises(AccessError):
        find(tmp_path / "sglang")


# The version


@pytest.mark.parametrize(
    ("version", "release", "nearest"),
    [
        ("0.5.9", "0.5.9", None),
        ("0.5.9+cu130", "0.5.9", None),
        # The tagged commit with uncommitted changes, as setuptools-scm names it.
        ("0.5.10.dev0+g1a2b3c4.d20260301", "0.5.9", None),
        ("0.5.9.post1.dev0+g1a2b3c4.d20260301", "0.5.9", None),
        ("0.5.9.post0+g1a2b3c4.d20260301", "0.5.9", None),
        ("0.5.9.dev0+g1a2b3c4.d20260301", "0.5.8", None),
        # A post-release is a release of its own.
        ("0.5.8.post1", "0.5.8.post1", None),
        ("0.5.8.post2.dev0+g1a2b3c4.d20260301", "0.5.8.post1", None),
        ("0.5.10", None, None),
        ("0.5.9rc1", None, None),
        ("0.5.9.post3", None, "0.5.9"),
        ("0.5.7.dev3+g1a2b3c4", None, "0.5.8"),
        ("0.5.10.dev0", None, "0.5.9"),
        ("0.5.10.dev3+g1a2b3c4.d20260301", None, "0.5.9"),
        ("x", None, None),
    ],
)
def test_a_version_may_count_as_a_release(
    version: str, release: str | None, nearest: str | None, tmp_path: Path
) -> None:
    package = make_package(tmp_path / "sglang", version)
    found = find(package)
    assert (found.version, found.release) == (version, release)
    if release is None:
        assert f"SGLang {version} in {package}" in refusal(found)
        assert "supports SGLang 0.5.8 to" in refusal(found)
        advised = re.findall(r"PRETEND_VERSION=(\S+)\+own", refusal(found))
        assert advised == ([nearest] if nearest else [])


@pytest.mark.parametrize(
    ("told", "metadata"),
    [("0.5.9", "0.5.8"), (None, "0.5.9"), ("0.0.0.dev0", "0.5.9")],
)
def test_metadata_has_the_version_that_the_package_lacks(
    told: str | None, metadata: str, tmp_path: Path
) -> None:
    package = make_package(tmp_path / "sglang", told)
    make_metadata(tmp_path, metadata)
    assert find(package).version == "0.5.9"


@pytest.mark.parametrize(
    "text",
    ["", "__version__ = get()\n", "def broken(:\n", "\0", '__version__ = "0.0.0.dev0"'],
)
def test_an_unknown_version_is_refused(text: str, tmp_path: Path) -> None:
    package = make_package(tmp_path / "sglang", None)
    (package / "_version.py").write_text(text)
    found = find(package)
    assert (found.version, found.release) == (versions.UNKNOWN, None)
    assert f"The version of the SGLang in {package} is unknown" in refusal(found)


# The wheel


def test_a_record_identifies_pristine_files(tmp_path: Path) -> None:
    package = make_package(tmp_path / "sglang")
    metadata = make_metadata(tmp_path, "0.5.9")
    found = find(package)
    original = hashlib.sha256(b"ENGINE = 1\n").hexdigest()

    assert (found.dist_info, found.editable) == (metadata, False)
    assert found.wheel_hashes([ENGINE, "srt/own.py"]) == {ENGINE: original}
    assert install.pristine(found, {ENGINE: original}) == {ENGINE: True}
    assert install.pristine(found, {ENGINE: "0" * 64}) == {ENGINE: False}
    assert install.pristine(found, {"srt/own.py": original}) == {"srt/own.py": None}


def test_without_metadata_no_file_is_known_to_be_pristine(tmp_path: Path) -> None:
    package = make_package(tmp_path / "sglang")
    make_metadata(tmp_path, "0.5.9", of_wheel=False)  # Of another package.
    found = find(package)
    assert found.dist_info is None and found.wheel_hashes([ENGINE]) == {}
    assert install.pristine(found, {ENGINE: "0" * 64}) == {ENGINE: None}


# Interpreters


def test_this_interpreters_sglang_is_found_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path / "sglang")
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = find()
    assert (found.package, found.found) == (package, f"imported by {sys.executable}")
    assert "sglang" not in sys.modules


@pytest.mark.parametrize("stray", ["nothing", "folder", "module"])
def test_an_interpreter_without_sglang_is_refused(
    stray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stray == "folder":
        (tmp_path / "sglang").mkdir()
    if stray == "module":
        (tmp_path / "sglang.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:3])
    with pytest.raises(UnsupportedTarget, match=r"has no SGLang|not the SGLang server"):
        find()


def test_an_editable_install_behind_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path / "checkout/sglang")
    stray = tmp_path / "site/sglang"
    stray.mkdir(parents=True)

    class Finder:
        """The import hook of an editable install."""

        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            return spec_from_file_location(name, package / "__init__.py")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert find().package == package
    monkeypatch.setattr(sys, "path", [str(stray.parent)])
    with pytest.raises(UnsupportedTarget, match="has no SGLang"):
        find()


@pytest.mark.parametrize("variable", [None, "VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_nearby_environment_with_sglang_is_suggested(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path / "site/sglang")
    folder = tmp_path / ("conda" if variable else ".venv")
    folder.mkdir()
    there = make_interpreter(folder / "bin", tmp_path / "site")
    bare = make_interpreter(tmp_path / "bare", tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.chdir(tmp_path)
    if variable:
        monkeypatch.setenv(variable, str(folder))

    with pytest.raises(UnsupportedTarget) as caught:
        find(python=bare)

    [named] = re.findall(r"Add `--python (\S+)`", str(caught.value))
    assert named == (str(there) if variable else ".venv/bin/python")
    assert find(python=named).package == tmp_path / "site/sglang"
    shutil.rmtree(tmp_path / "site/sglang")
    with pytest.raises(UnsupportedTarget, match="Name another interpreter"):
        find(python=bare)


def make_program(folder: Path, script: str) -> Path:
    """Write a shell script named `python`."""
    folder.mkdir(exist_ok=True)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def make_interpreter(folder: Path, *paths: Path) -> Path:
    """Make an interpreter with these import folders, which prints extra output."""
    return make_program(
        folder,
        f"echo '[1]'\nPYTHONPATH='{os.pathsep.join(map(str, paths))}' {sys.executable} -S "
        '"$@"\necho; echo Goodbye; echo 5',
    )


def test_another_interpreters_sglang_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path / "site" / "sglang")
    metadata = make_metadata(tmp_path / "site", "0.5.9")
    python = make_interpreter(tmp_path / "bin", package.parent)
    found = find(python=python)
    assert (found.package, found.dist_info) == (package, metadata)
    assert found.found == f"imported by {python}"
    python.rename(python.with_name("its-python"))
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    # A folder in the current directory is not an install.
    make_package(tmp_path / "here/sglang", "0.5.8")
    monkeypatch.chdir(tmp_path / "here")
    for given in ("its-python", "../bin/its-python"):
        assert find(python=Path(given)).package == package


def test_an_editable_install_has_its_metadata_elsewhere(tmp_path: Path) -> None:
    package = make_package(tmp_path / "checkout/python/sglang", None)
    site = tmp_path / "site"
    metadata = make_metadata(site, "0.5.9", of_wheel=False)
    python = make_interpreter(tmp_path / "bin", package.parent, site)
    found = find(python=python)
    assert (found.package, found.version) == (package, "0.5.9")
    assert (found.dist_info, found.editable) == (metadata, True)
    assert install.pristine(found, {ENGINE: "0" * 64}) == {ENGINE: None}


ANSWERS = (
    *("5", "[]", "null", '{"origin": 5, "path": []}', '{"origin": null}'),
    *('{"origin": "/x", "path": [5]}', '{"origin": "\\u0000", "path": []}'),
)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 7", r"failed with exit code 7 \(no message\)"),
        ("echo a >&2; echo no >&2; exit 1", r"failed with exit code 1 \(no\)"),
        ("true", "is not a Python interpreter"),
        ("exec sleep 30", r"did not answer within 0\.5 s"),
        # The answer without the output before it.
        ("""echo '{"origin": null, "path": []}'""", "is not a Python interpreter"),
        *(
            (f"cat <<'END'\nagentcore-patch: {answer}\nEND", "is not a Python interp")
            for answer in ANSWERS
        ),
    ],
)
def test_a_program_that_is_not_an_interpreter(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(interpreters, "_PROBE_SECONDS", 0.5)
    with pytest.raises(UnsupportedTarget, match=said):
        find(python=make_program(tmp_path, script))


def test_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTarget, match="no program"):
        find(python=tmp_path / "python")
    make_interpreter(tmp_path / "bin")
    with pytest.raises(UnsupportedTarget, match=rf"mean --python {tmp_path}/bin/pyt"):
        find(python=tmp_path)
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(UnsupportedTarget, match="Cannot run"):
        find(python=tmp_path / "broken")
