"""`say -o FILE`: speech is kept while it is made, so that an interrupted run can be resumed.

Chunks go into a journal beside the file. When all is spoken, the file is encoded from it, appears
under its name at once, and the journal goes.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nightingale import __version__
from nightingale.audio.encode import write
from nightingale.cli import player
from nightingale.cli.journal import Fingerprint, Journal, difference, place
from nightingale.cli.request import warn
from nightingale.cli.resume import resume_stream, speak_into
from nightingale.cli.terminal import Interrupted
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import NightingaleError, ResumeError

if TYPE_CHECKING:
    from rich.console import Console

    from nightingale.cli.request import Request, Text
    from nightingale.pipeline import Nightingale


def speak_to_file(request: Request, text: Text, output: Path, console: Console) -> None:
    """Speak, and leave either the whole file, or a journal and how to go on."""
    job = _Job(request, text, output, console)
    try:
        job.run()
    except KeyboardInterrupt as interrupt:
        message = job.leave()
        raise Interrupted.of(interrupt, f"Interrupted; {message}") from None
    except ResumeError:
        raise
    except NightingaleError:
        message = job.leave()
        if job.has_kept:
            console.print(f"Failed; {message}")
        raise
    finally:
        if job.journal is not None:
            job.journal.close()


class _Job:
    def __init__(self, request: Request, text: Text, output: Path, console: Console) -> None:
        self.request, self.text, self.output, self.console = request, text, output, console
        self.journal: Journal | None = None
        self.elapsed_s = 0.0
        self.n_kept = 0  # samples of an earlier run
        self.unspoken: tuple[str, ...] = ()

    def run(self) -> None:
        asked = fingerprint(self.request, self.text)
        self.journal = _open(self.output, asked, self.request.is_resumed)
        self.n_kept = self.journal.kept.n_samples if self.journal else 0
        if self.journal is None or not self.journal.kept.is_ended:
            self._speak(asked)
        assert self.journal is not None
        target = self.request.target
        write(self.output, self.journal.samples(), target.format, target.rate_hz)
        warn(self.journal.kept.is_complete, self.unspoken, self.console)
        if not self.request.is_quiet:
            self.console.print(self._summary(self.n_kept, self.journal.kept.n_samples))
        if target.is_played:
            self._play()
        self.journal.delete()

    @property
    def has_kept(self) -> bool:
        """Something was spoken."""
        return self.journal is not None and self.journal.kept.n_samples > 0

    def leave(self) -> str:
        """What an interrupted run leaves behind, and what to do with it."""
        if self.journal is None or not self.has_kept:
            if self.journal is not None:
                self.journal.delete()
            return "nothing was spoken yet"
        kept = self.journal.kept
        return (
            f"kept {kept.seconds:.1f} s in {self.journal.path}; "
            "resume with the same command and --resume"
        )

    def _speak(self, asked: dict[str, str]) -> None:
        tts, voice = self.request.load(self.console)
        asked |= identity(tts)
        if self.journal is None:
            self.journal = Journal.create(place(self.output), asked)
        _check(self.journal, asked)
        if isinstance(self.text, str):
            self.journal.cut_to_part()
            self.n_kept = self.journal.kept.n_samples
        started = time.perf_counter()
        with self.request.speaking(self.text, self.console) as progress:
            speech, chunks = resume_stream(
                tts, voice, self.request.options, self.journal.kept, progress
            )
            speak_into(self.journal, speech, chunks)
        self.unspoken = speech.unspoken
        self.elapsed_s = time.perf_counter() - started

    def _summary(self, n_kept: int, n_samples: int) -> str:
        seconds = n_samples / SAMPLES_PER_SECOND
        ratio = f"in {self.elapsed_s:.1f} s"
        if n_kept:
            return (
                f"{self.request.target.output}: {seconds:.1f} s of audio, "
                f"{n_kept / SAMPLES_PER_SECOND:.1f} s of it from the interrupted run, {ratio}"
            )
        ratio += f" ({self.elapsed_s / seconds:.2f} x real time)"
        return f"{self.request.target.output}: {seconds:.1f} s of audio {ratio}"

    def _play(self) -> None:
        assert self.journal is not None
        with tempfile.TemporaryDirectory() as folder:
            sound = Path(folder) / "speech.wav"
            write(sound, self.journal.samples())
            player.play(str(sound))


def _open(output: Path, asked: Fingerprint, is_resumed: bool) -> Journal | None:
    """What an earlier run left, if it is to be continued and belongs to this request."""
    journal = Journal.open(place(output))
    if journal is None:
        return None
    try:
        if not is_resumed:
            raise ResumeError(
                f"{journal.path} holds the first {journal.kept.seconds:.1f} s of an interrupted "
                "run; add --resume to continue it, or delete it to start again"
            )
        _check(journal, asked)
    except ResumeError:
        journal.close()
        raise
    for draft in output.parent.glob(f".{output.name}.{'[0-9a-f]' * 8}"):
        draft.unlink(missing_ok=True)  # of a run that was killed while it encoded
    return journal


def _check(journal: Journal, asked: Fingerprint) -> None:
    if found := difference(journal.fingerprint, asked):
        raise ResumeError(
            f"{journal.path} was made with {found}; repeat the command as it was, or delete the "
            "file to start again"
        )


def fingerprint(request: Request, text: Text) -> dict[str, str]:
    """All that decides the samples and the file, as far as it is known before loading."""
    target, voice = request.target, request.voice_file
    options = {name: str(value) for name, value in asdict(request.checked).items()}
    return {
        "version": __version__,
        "text": _sha256(text.encode()) if isinstance(text, str) else "as it arrives",
        "model": request.model.name,
        "voice": _digest(voice),
        **{f"voice {name}": _digest(file) for name, file in request.named_voices.items()},
        "plan": request.plan,
        "decoder": request.decoder or "the model's own",
        "watermark": str(request.watermark),
        "format": target.format,
        "rate": str(target.rate_hz),
        **options,
    }


def identity(tts: Nightingale) -> dict[str, str]:
    """The rest, which only a loaded model knows: its weights, and what computes with them.

    Size and time of change stand for a file's content, as in git's index.
    """
    weights = hashlib.sha256()
    for role, file in sorted(tts.components.files.items()):
        seen = file.stat()
        weights.update(f"{role} {file.name} {seen.st_size} {seen.st_mtime_ns}\n".encode())
    return {
        "weights": weights.hexdigest(),
        "backend": tts.components.backend,
        "device": tts.components.loaded.device,
        "resolved plan": str(tts.components.plan),
        **tts.components.loaded.versions,
    }


def _digest(voice: Path | None) -> str:
    return _sha256(voice.read_bytes()) if voice else "the model's own"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
