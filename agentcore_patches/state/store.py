"""The stored files that the record and the journal name, by their SHA-256."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from agentcore_patches.disk.filesystem import (
    digest,
    files_in,
    make_folder,
    read_bytes,
    remove_if_empty,
    sync,
    write_whole,
)
from agentcore_patches.errors import AccessError


class Store:
    """Stored originals. Each keeps the mode of its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"

    def make(self) -> None:
        make_folder(self.folder, like=self.folder.parent)
        sync(self.folder)

    def add(self, text: bytes, mode: int) -> None:
        file = self.folder / digest(text)
        try:
            if read_bytes(file) == text:
                return
        except OSError:  # missing, or something else to replace
            pass
        make_folder(self.folder, like=self.folder.parent)
        write_whole(file, text, mode=mode & 0o666)

    def load(self, name: str) -> bytes:
        """Return the content with this SHA-256; AccessError if it is damaged."""
        file = self.folder / name
        text = read_bytes(file)
        if digest(text) != name:
            raise AccessError(
                f"{file} is damaged: it is not the text that was saved. Nothing was "
                "changed.",
                hint="Reinstall SGLang to get its original files back.",
            )
        return text

    def keep_only(self, names: Container[str]) -> None:
        """Remove all other files, and the folder if it is then empty."""
        for file in self.files():
            if file.name not in names:
                file.unlink(missing_ok=True)
        remove_if_empty(self.folder)

    def files(self) -> list[Path]:
        return files_in(self.folder)
