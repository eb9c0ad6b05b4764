"""One request in the worker: what the scheduler computes for it, sent to its front as it comes.

Audio, words when their ends are known, and behind each part of the text a checkpoint, from which
another worker can go on. Called in the scheduler's thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from nightingale.errors import NightingaleError
from nightingale.server.step_record import Step
from nightingale.server.worker_protocol import Message

if TYPE_CHECKING:
    from nightingale.core import AudioChunk, Voice, Word
    from nightingale.scheduler import Scheduler
    from nightingale.server.step_record import StepRecord
    from nightingale.speech import SpeechStream
    from nightingale.text.text_queue import TextQueue


class Here(Protocol):
    """The worker, as far as it is needed here."""

    scheduler: Scheduler
    record: StepRecord
    stepping: int | None


class Sender(Protocol):
    """The connection, as far as it is needed here."""

    number: int

    @property
    def worker(self) -> Here: ...

    def post(self, output: RequestOutput, message: Message, payload: bytes = b"") -> None: ...


class RequestOutput:
    """The way from one request's steps to its front."""

    def __init__(
        self,
        sender: Sender,
        number: int,
        speech: SpeechStream,
        text_queue: TextQueue | None,
        begun: Message,
        voices: dict[str, Voice],
    ) -> None:
        """`begun`: the checkpoint message that it goes on from, or nothing. `voices`: those that
        its mark-up names; arriving text may name more."""
        self._sender, self._number, self._speech = sender, number, speech
        self.voices = voices
        self.text_queue = text_queue
        self.is_dropped = False  # another request took its place: nothing is sent any more
        self._idle_since: float | None = None
        self._idle_s = 0.0  # since the last chunk, for want of text
        self._n_parts = self._n_words = 0  # parts that are over, and words sent of the next one
        self._n_sent = int(begun.get("n_words", 0))  # words in all
        self._work_ms = float(begun.get("work_ms", 0.0))  # that were spent elsewhere
        self._n_unspoken = 0  # characters that were reported
        self._place = int(begun["checkpoint"]["n_parts"]) if begun else 0, 0  # part, step
        self._step: Step | None = None  # that is being computed
        self._checkpoint = speech.checkpoint
        self._n_opened = 0  # parts of speech, before the step that was computed last

    def around(self, is_begun: bool) -> None:
        """Before and behind each step."""
        worker = self._sender.worker
        if not is_begun:
            if self._step is not None:
                worker.record.end(self._step)
            worker.stepping = self._step = None
            return
        if self._speech.checkpoint is not self._checkpoint:
            self._send_checkpoint()
        self._n_opened = len(self._speech.parts)
        worker.stepping = self._number
        self._step = Step(self._sender.number, self._number, *self._place)
        worker.record.begin(self._step)
        self._place = self._place[0], self._place[1] + 1

    def is_ready(self) -> bool:
        """There is text to speak."""
        n_characters = 0 if self.text_queue is None else self.text_queue.n_characters  # read before
        is_ready, now = self.text_queue is None or self.text_queue.is_ready(), time.monotonic()
        if is_ready and self._idle_since is not None:
            self._idle_s += now - self._idle_since
        if not is_ready and self._idle_since is None:
            self._send_last_word()
            self._send({"kind": "idle", "id": self._number, "n_characters": n_characters})
        self._idle_since = None if is_ready else self._idle_since or now
        return is_ready

    def on_audio(self, chunk: AudioChunk) -> None:
        samples = chunk.samples.astype("<f4", copy=False).tobytes()
        idle_s, self._idle_s = self._idle_s, 0.0
        busy_s = self._sender.worker.scheduler.busy_s
        message: Message = {"kind": "audio", "id": self._number}
        message |= {"idle_s": idle_s, "busy_s": busy_s, "is_pause": chunk.is_pause}
        if self._speech.token_log.attempts:
            message["token_log"] = self._speech.token_log.to_json()
        if len(self._speech.unspoken) > self._n_unspoken:
            self._n_unspoken = len(self._speech.unspoken)
            message["unspoken"] = list(self._speech.unspoken)
        if self._speech.speed != 1.0:
            message["speed"] = self._speech.speed
        if self._speech.language is not None:
            message["language"] = list(self._speech.language)
        self._send(message, samples)
        self._send_words(len(self._speech.parts) - 1)

    def end(self, error: Exception | None) -> None:
        speech = self._speech
        if error is not None:
            self._send(failure({"id": self._number}, error))
            return
        self._send_words(len(speech.parts))
        self._send(
            {
                "kind": "end",
                "id": self._number,
                "n_samples": speech.n_samples,
                "n_tokens": speech.n_tokens,
                "is_cancelled": speech.is_cancelled,
                "is_complete": speech.is_complete,
                "unsaid": speech.unsaid,
                "unspoken": speech.unspoken,
                "work_ms": self._work_ms + speech.timings.total_ms,
            }
        )

    def _send(self, message: Message, payload: bytes = b"") -> None:
        self._sender.post(self, message, payload)

    def _send_checkpoint(self) -> None:
        """Behind the audio and the words of the part that is over."""
        self._checkpoint = checkpoint = self._speech.checkpoint
        assert checkpoint is not None
        self._place = checkpoint.n_parts, 0
        self._send_words(self._n_opened)
        self._send(
            {
                "kind": "checkpoint",
                "id": self._number,
                "checkpoint": checkpoint.to_json(),
                "n_words": self._n_sent,
                "work_ms": self._work_ms + self._speech.timings.total_ms,
            }
        )

    def _send_last_word(self) -> None:
        """Text is only asked for between two parts, so the end of the last word is known."""
        parts = self._speech.parts
        if parts and parts[-1].is_settled:
            self._send_words(len(parts))

    def _send_words(self, n_past: int) -> None:
        """Each word once, when its end is known; counted, so that a repetition is recognised.

        So many parts are over.
        """
        parts = self._speech.parts
        fresh: list[Word] = []
        for number in range(self._n_parts, len(parts)):
            begun = list(parts[number].words())
            is_past = number < n_past
            if not is_past and not parts[number].is_settled:
                break  # when its words are said is not known yet
            known = begun if is_past else begun[:-1]
            fresh += known[self._n_words :]
            self._n_words = len(known)
            if is_past:
                self._n_parts, self._n_words = number + 1, 0
        if fresh:
            words = [[word.text, round(word.start_s, 3), round(word.end_s, 3)] for word in fresh]
            head = {"kind": "words", "id": self._number, "first": self._n_sent}
            self._send({**head, "words": words})
            self._n_sent += len(words)


def failure(message: Message, error: Exception) -> Message:
    """Ours are sent as they are; of others only their name, for they may hold anything."""
    is_ours = isinstance(error, NightingaleError)
    return {
        "kind": "error",
        "id": message.get("id"),
        "error": type(error).__name__,
        "message": str(error) if is_ours else f"the worker failed ({type(error).__name__})",
    }
