"""Output directories: written beside their place, complete with hashes, then moved there in one step or not at all."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from seqspec.diagnostics import CompileError

MANIFEST = "seqspec.json"
SCHEMA = 1
_MARK = ".seqspec-"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_HEAD = 1 << 10  # bytes of a file by which it is known


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new directory that replaces `path` when the block ends. If anything fails, `path` is unchanged."""
    path = Path(os.path.abspath(path))
    refuse(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        fresh = path.with_name(f".{path.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
        fresh.mkdir()
    except OSError as error:
        _unwritable(path, error)
    try:
        yield fresh
        for inner in (*(f for f in fresh.rglob("*") if f.is_dir()), fresh):
            _sync(inner)
        _swap(fresh, path)
        _sync(path.parent)
    except OSError as error:
        _unwritable(path, error)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def replace_file(path: Path, content: bytes, ours: Callable[[bytes], bool]) -> None:
    """Writes the file at `path`, which is unchanged if anything fails. `refuse_file` says what it may replace."""
    path = Path(os.path.abspath(path))
    refuse_file(path, ours)
    fresh = path.with_name(f".{path.name}{_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(fresh, content)
        fresh.replace(path)
    except OSError as error:
        _unwritable(path, error)
    finally:
        fresh.unlink(missing_ok=True)


def refuse(path: Path) -> None:
    """SEQ403 unless there is nothing at the path, or an output of seqspec and nothing else."""
    mode = _mode(path)
    if mode is None:
        return
    if not stat.S_ISDIR(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "a file"
        raise CompileError("SEQ403", f"`{path}` is {what}.", "give a directory that does not exist yet")
    try:
        foreign = _foreign(path)
    except OSError as error:
        _unwritable(path, error)
    if foreign:
        raise CompileError(
            "SEQ403", f"`{path}` holds `{foreign}`, which is no output of seqspec.", "nothing was changed"
        )


def refuse_file(path: Path, ours: Callable[[bytes], bool]) -> None:
    """SEQ403 unless there is nothing at the path, or a file whose first bytes `ours` recognises."""
    mode = _mode(path)
    if mode is None:
        return
    if stat.S_ISDIR(mode):
        raise CompileError("SEQ403", f"`{path}` is a directory.", "give the path of a file")
    if not stat.S_ISREG(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "no ordinary file"
        raise CompileError("SEQ403", f"`{path}` is {what}.", "give the path of a file that does not exist yet")
    try:
        with path.open("rb") as stream:
            known = ours(stream.read(_HEAD))
    except OSError as error:
        _unwritable(path, error)
    if not known:
        text = f"`{path}` exists and is no output of seqspec."
        raise CompileError("SEQ403", text, "nothing was changed; give the path of a file that does not exist yet")


def seal(folder: Path, manifest: Mapping[str, Any], known: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Writes the manifest, last of all, with size and SHA-256 of every file.

    `known` has those hashed on the way, and None for files that may be changed.
    """
    files = {}
    for name in names(folder):
        _sync(folder / name)
        files[name] = known[name] if name in known else record(folder / name)
    whole = {"seqspec": SCHEMA, **manifest, "files": files}
    text = json.dumps(whole | {"sha256": digest(whole)}, indent=2, ensure_ascii=False)
    write(folder / MANIFEST, (text + "\n").encode())


def digest(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of what a manifest says, in its order, whatever lies between; it stands in the manifest itself."""
    said = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()


def names(folder: Path) -> list[str]:
    """The files in a folder and below, as relative paths, without the manifest."""
    found = (f.relative_to(folder).as_posix() for f in folder.rglob("*") if not f.is_dir())
    return sorted(name for name in found if name != MANIFEST)


def record(file: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file, as the manifest holds them."""
    with file.open("rb") as stream:
        return {"size": file.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def write(file: Path, content: bytes) -> None:
    """Writes the content and flushes it to the disk."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _mode(path: Path) -> int | None:
    """The mode of what lies at the path, links not followed; None if nothing does, SEQ404 if it cannot be found out."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        _unwritable(path, error)


def _foreign(path: Path) -> str | None:
    """The first entry of a directory that its manifest does not list, if any. Nothing below a foreign entry is read."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        ours = {MANIFEST, *manifest["files"]} if manifest["seqspec"] else set()
        ours |= {parent.as_posix() for name in ours for parent in PurePosixPath(name).parents}
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    folders = [path]
    while folders:
        for entry in sorted(folders.pop().iterdir()):
            name = entry.relative_to(path).as_posix()
            if name not in ours:
                return name
            if entry.is_dir() and not entry.is_symlink():
                folders.append(entry)
    return None


def _swap(fresh: Path, path: Path) -> None:
    """Moves `fresh` to `path`; what was there ends up under the name of `fresh`."""
    if not path.exists():
        fresh.rename(path)
    elif not _exchange(fresh, path):
        aside = fresh.with_name(f"{fresh.name}-old")
        path.rename(aside)
        try:
            fresh.rename(path)
        except BaseException:
            aside.rename(path)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swaps two names atomically if the system can; then even a power cut leaves one of the two whole."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0)


def _remove_leftovers(path: Path) -> None:
    """Removes what killed runs for this path left behind; an old output that one had moved aside is restored."""
    for left in path.parent.glob(f".{glob.escape(path.name)}{_MARK}*"):
        pid = left.name.rpartition(_MARK)[2].partition("-")[0]
        if pid.isdecimal() and _alive(int(pid)):
            continue
        if left.name.endswith("-old") and not path.exists():
            left.rename(path)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    if os.name == "nt":  # there signal 0 is Ctrl-C; files in use cannot be removed anyway
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(path: Path) -> None:
    """Flushes a file, or the names in a directory, to the disk, so that they survive a power cut."""
    if os.name == "nt" and path.is_dir():  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> NoReturn:
    raise CompileError("SEQ404", f"`{path}` cannot be written: {error.strerror or error}.") from error
