"""Brings models here from the Hugging Face hub. The only file that knows huggingface_hub.

Files land in the hub's own cache, where other programs find them too; HF_HOME, HF_ENDPOINT,
HF_TOKEN and HF_HUB_OFFLINE are read by the library itself. Bytes are streamed here and not by the
library, which forgets a half-done download when its process ends. Knows nothing of files' content.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import (
    constants,
    get_hf_file_metadata,
    get_session,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub import errors as hub
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported lazily
    WeakFileLock,
    build_hf_headers,
    hf_raise_for_status,
)

from nightingale.errors import CorruptFileError, PullError, WeightsError
from nightingale.weights.catalog import Model, RemoteFile, Role
from nightingale.weights.manifest import FileStamp, git_blob_of, locate, remember

Report = Callable[[str, int, int], None]  # file, bytes that are here, bytes in all

_N_TRIES = 3  # in a row without a single new byte
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

# The library's HTTP client is another one in each major version; its error can be had here.
_HTTPError: type[Exception] = vars(hub)["HTTPError"]


def pull(model: Model, home: Path, report: Report = lambda *_: None) -> dict[Role, Path]:
    """Bring every file of a model here, check it, and convert pickles. Says where the files lie.

    What is here is checked and kept, what was cut off is continued, what is bad is replaced.
    """
    if model.is_bundled:
        return locate(model, home)
    try:
        commits = _commits(model)
    except PullError:
        with suppress(WeightsError):  # a branch cannot be followed now, but what it gave is here
            return locate(model, home)
        raise
    stamps: dict[RemoteFile, FileStamp] = {}
    for part in model.parts:
        with _explained(part):
            stamps[part] = _fetch(part, commits[part.repo, part.revision], report)
    try:
        for part in model.parts:
            if part.path.endswith(".pt"):
                stamps[part] = _converted(stamps[part], home)
        remember(model, stamps, home)
    except OSError as error:
        raise PullError(
            f"{model.name} was downloaded, but {home} cannot be written: {error}. "
            "Make room there, or let NIGHTINGALE_HOME point elsewhere, and pull again"
        ) from error
    return locate(model, home)


def _converted(pickle: FileStamp, home: Path) -> FileStamp:
    # torch takes seconds to import, and most files do not need it.
    from nightingale.weights.convert import convert  # noqa: PLC0415

    return FileStamp.take(convert(pickle.file, pickle.sha256, home))


def _commits(model: Model) -> dict[tuple[str, str], str]:
    """One commit per repository, asked for once: files of two commits must not meet in a model."""
    commits: dict[tuple[str, str], str] = {}
    for part in model.parts:
        source = part.repo, part.revision
        if source not in commits:
            commits[source] = part.revision if part.is_pinned else _ask(part, part.revision).commit
    return commits


def _fetch(part: RemoteFile, commit: str, report: Report) -> FileStamp:
    """One file, checked: from the cache, or from the hub when the cache has none or a bad one."""
    cached = try_to_load_from_cache(part.repo, part.path, revision=commit)
    if isinstance(cached, str):
        stamp = FileStamp.take(Path(cached))
        if _is_genuine(stamp, _digest(part, commit, stamp.file)):
            return stamp
        _discard(stamp.file)
    stamp = FileStamp.take(_download(part, commit, report))
    digest = _digest(part, commit, stamp.file)
    if not _is_genuine(stamp, digest):
        _discard(stamp.file)
        raise CorruptFileError(
            f"{part.path} from {part.repo} is not the file that was asked for: its hash is not "
            f"{digest[:12]}…. It was deleted; pull again, and if that does not help, "
            f"do not trust {constants.ENDPOINT}"
        )
    return stamp


def _digest(part: RemoteFile, commit: str, pointer: Path) -> str:
    """What the content must hash to: the catalog's sum, or else the hub's."""
    if part.sha256 is not None:
        return part.sha256
    # The cache links to a file called by its hash. One step only: that may be a link itself.
    name = pointer.readlink().name if pointer.is_symlink() else ""
    return name if _DIGEST.fullmatch(name) else _ask(part, commit).digest


def _is_genuine(stamp: FileStamp, digest: str) -> bool:
    is_sha256 = len(digest) == 64  # large files; small ones go by the name that git gives them
    return (stamp.sha256 if is_sha256 else git_blob_of(stamp.file)) == digest


def _discard(pointer: Path) -> None:
    if pointer.is_symlink():
        (pointer.parent / pointer.readlink()).unlink(missing_ok=True)
    pointer.unlink()


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the hub says about a file."""

    commit: str
    digest: str
    n_bytes: int


def _ask(part: RemoteFile, revision: str) -> _Answer:
    with _explained(part):
        remote = get_hf_file_metadata(hf_hub_url(part.repo, part.path, revision=revision))
    if (
        remote.commit_hash is None
        or remote.size is None
        or not _DIGEST.fullmatch(remote.etag or "")
    ):
        raise PullError(
            f"{constants.ENDPOINT} does not say commit, size and hash of {part.path}: "
            "it is not a hub, or something stands between (a proxy?). Look at HF_ENDPOINT"
        )
    return _Answer(remote.commit_hash, remote.etag or "", remote.size)


def _download(part: RemoteFile, commit: str, report: Report) -> Path:
    answer = _ask(part, commit)
    cache = Path(constants.HF_HUB_CACHE)
    folder = repo_folder_name(repo_id=part.repo, repo_type="model")
    blob = cache / folder / "blobs" / answer.digest
    lock = cache / ".locks" / folder / f"{answer.digest}.lock"
    for needed in (blob.parent, lock.parent):
        needed.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):  # the library's own lock: one download at a time, whoever does it
        if not blob.exists():
            url = hf_hub_url(part.repo, part.path, revision=commit)
            partial = blob.with_name(f"{blob.name}.incomplete")
            _stream(url, partial, answer.n_bytes, lambda n: report(part.path, n, answer.n_bytes))
            partial.replace(blob)
    # The content is there: this only links it into the snapshot.
    pointer = Path(hf_hub_download(part.repo, part.path, revision=commit))
    if not pointer.is_symlink():  # a disk without links has got a copy
        blob.unlink(missing_ok=True)
    return pointer


def _stream(url: str, partial: Path, n_bytes: int, report: Callable[[int], None]) -> None:
    """Fill `partial` from where it ends; try again as long as something new arrives."""
    partial.touch()
    if partial.stat().st_size > n_bytes:
        partial.write_bytes(b"")
    n_missing = n_bytes - partial.stat().st_size
    n_free = shutil.disk_usage(partial.parent).free
    if n_missing > n_free:
        raise PullError(
            f"{n_missing:,} bytes are to come, but only {n_free:,} are free in {partial.parent}; "
            "make room, or let HF_HOME point to a larger disk"
        )
    n_idle = 0
    while (n_have := partial.stat().st_size) < n_bytes:
        if n_idle == _N_TRIES:
            raise ConnectionError(f"{_N_TRIES} tries, and not one new byte")
        try:
            _append(url, partial, n_have, report)
        except hub.HfHubHTTPError:
            raise  # the hub has answered, and would say the same again
        except _HTTPError:
            time.sleep(0.5)  # the connection broke: go on from there
        n_idle = 0 if partial.stat().st_size > n_have else n_idle + 1


def _append(url: str, partial: Path, n_have: int, report: Callable[[int], None]) -> None:
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if n_have:
        headers["Range"] = f"bytes={n_have}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        is_continued = response.status_code == 206
        n_have = n_have if is_continued else 0
        with partial.open("ab" if is_continued else "wb") as file:
            for piece in response.iter_bytes():
                file.write(piece)
                n_have += len(piece)
                report(n_have)


@contextmanager
def _explained(part: RemoteFile) -> Iterator[None]:
    try:
        yield
    except (OSError, hub.EntryNotFoundError, _HTTPError) as error:
        raise PullError(
            f"{part.path} from {part.repo} could not be downloaded: {_reason(part, error)}"
        ) from error


def _reason(part: RemoteFile, error: Exception) -> str:
    """What went wrong and what helps. The first class that fits speaks, so the narrow ones lead."""
    unreachable = (
        f"{constants.ENDPOINT} cannot be reached or broke off; what came is kept, pull again"
    )
    status = error.response.status_code if isinstance(error, hub.HfHubHTTPError) else None
    reasons: list[tuple[type[Exception], str]] = [
        (hub.OfflineModeIsEnabled, "HF_HUB_OFFLINE is set; unset it to download"),
        (hub.GatedRepoError, "accept its terms on the hub's page, then set HF_TOKEN"),
        (
            hub.RepositoryNotFoundError,
            "the hub shows it to nobody without a right HF_TOKEN; set one",
        ),
        (hub.RevisionNotFoundError, f"its revision {part.revision} is gone; update Nightingale"),
        (hub.LocalEntryNotFoundError, unreachable),
        (hub.EntryNotFoundError, f"revision {part.revision} has no such file; update Nightingale"),
        (hub.HfHubHTTPError, f"the hub answered with status {status}; pull again later"),
        (
            hub.FileMetadataError,
            f"{constants.ENDPOINT} does not answer like a hub; check HF_ENDPOINT",
        ),
        (_HTTPError, unreachable),
        (ConnectionError, unreachable),
    ]
    for kind, reason in reasons:
        if isinstance(error, kind):
            return reason
    return f"{error}; make sure that {constants.HF_HUB_CACHE} can be written and has room"
