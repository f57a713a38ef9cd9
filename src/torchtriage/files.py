"""Access to files that other programs may change: only regular ones are read, a file is replaced as a whole.

Every observed process may load this module, so it imports only what Python has loaded already.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False   # see launch/environment.py
if TYPE_CHECKING:
    from typing import BinaryIO

CHUNK = 1 << 20


def open_regular(path: str | os.PathLike[str], *, follow: bool = False) -> BinaryIO:
    """The file, opened to be read; raises OSError if it is a symbolic link, a folder, a pipe or a device.

    It never blocks, as opening a pipe does. With `follow`, a link to a regular file is accepted.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow:
        if os.path.islink(path):
            raise OSError(None, "it is a symbolic link", os.fspath(path))
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "it is not a regular file", os.fspath(path))
    return open(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], max_bytes: int, *, follow: bool = False) -> bytes:
    """The content of a regular file; raises OSError if it is none, or larger than `max_bytes`."""
    with open_regular(path, follow=follow) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(None, f"it is larger than {max_bytes:,} bytes", os.fspath(path))
    return content


def replace_file(path: str | os.PathLike[str], content: bytes | BinaryIO, *, durable: bool = False) -> None:
    """Write a file as a whole, or raise OSError and leave what is there unchanged.

    The mode of an existing file is kept. A link to a file stays a link; a link to nothing is refused, and so is what is
    not a regular file. With `durable`, the file survives a power failure.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            raise OSError(None, "it is a symbolic link to a file that does not exist", os.fspath(path)) from None
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(None, "it is not a regular file", os.fspath(path))
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:100]}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(descriptor, "wb") as file:
            _write(file, content)
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    if durable:
        _sync_folder(folder)


def _write(file: BinaryIO, content: bytes | BinaryIO) -> None:
    if not hasattr(content, "read"):
        file.write(content)
        return
    while chunk := content.read(CHUNK):
        file.write(chunk)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _sync_folder(folder: str) -> None:
    """Make the rename itself durable; not every file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
