"""Many requests, one model: whose step is next.

One thread owns the model and computes one step at a time, for the listener who would otherwise
starve first. If that step needs a token or a window, those of the others who need a token, or a
window of the same size, are computed with it, in one batch. What a request sounds like does not
depend on who else is there: only when it sounds. Knows nothing of sockets, and of speech only that
it comes in steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from nightingale.backends.base import DecodedWindow, TokenEvent, WindowJob
from nightingale.core import SAMPLES_PER_SECOND, AudioChunk
from nightingale.errors import BusyError


class Steps(Protocol):
    """An utterance under way, as `SpeechStream` is."""

    @property
    def token_number(self) -> int | None:
        """The token that the next step needs; None: it needs something else."""

    @property
    def window_job(self) -> WindowJob | None:
        """The window that the next step needs; None: it needs something else."""

    def give(self, event: TokenEvent, spent_ms: float) -> None:
        """That token: the next step will not compute it."""

    def give_window(self, decoded: DecodedWindow) -> None:
        """That window, likewise."""

    def step(self) -> AudioChunk | None:
        """Raises StopIteration at the end."""

    def cancel(self) -> None: ...


FIRST_AUDIO_DEADLINE_S = 0.5  # after arrival; who listens already is due when all is heard
MAX_BATCH = 16  # requests whose tokens are computed together
MAX_WINDOWS = 4  # requests whose windows are decoded together
_TOKEN = 0  # of the kinds of a step that can be shared; those of windows are their sizes
BATCH_HORIZON_S = 1.0  # who is due later than this, from now or behind the first, does not join it

OnAudio = Callable[[AudioChunk], None]  # called in the scheduler's thread: hand it on, do not wait
OnEnd = Callable[[Exception | None], None]  # once, when nothing comes any more
AroundStep = Callable[[bool], None]  # before a step with True, behind it with False; same thread
StepTokens = Callable[[Sequence[int]], list[TokenEvent]]  # one more of each, in the same order
DecodeWindows = Callable[[Sequence[WindowJob]], list[DecodedWindow]]  # in the same order
IsReady = Callable[[], bool]  # False while a step would have nothing to do: no text has come yet


@dataclass(slots=True, eq=False)
class Request:
    """One that was admitted."""

    speech: Steps
    on_audio: OnAudio
    end: OnEnd
    asked_at: float
    n_skip: int = 0  # samples that its listener has from elsewhere, and is not given again
    n_allowed: int | None = None  # samples from the beginning that it has room for; None: all
    is_ready: IsReady = lambda: True
    around: AroundStep = lambda _is_begun: None
    is_alone: bool = False  # its tokens are not computed with others': it may have killed a worker
    first_at: float | None = None  # when its listener began to listen
    n_samples: int = 0  # that were made, skipped ones too
    is_cancelled: bool = False

    @property
    def deadline(self) -> float:
        """When its listener has heard everything, or loses patience."""
        if self.first_at is None:
            return self.asked_at + FIRST_AUDIO_DEADLINE_S
        return self.first_at + (self.n_samples - self.n_skip) / SAMPLES_PER_SECOND

    @property
    def can_go_on(self) -> bool:
        """There is something to do, and room for what comes of it."""
        has_room = self.n_allowed is None or self.n_samples < self.n_allowed
        return self.is_cancelled or (has_room and self.is_ready())


class Scheduler:
    """Computes for all who were admitted, until it is closed."""

    def __init__(
        self,
        max_requests: int,
        step_tokens: StepTokens | None = None,
        decode_windows: DecodeWindows | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `step_tokens` or `decode_windows`, every step computes its own."""
        self._max, self._clock = max_requests, clock
        self._step_tokens, self._decode_windows = step_tokens, decode_windows
        self._requests: list[Request] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._stepping_since: float | None = None
        self._stepped_s = 0.0
        self._thread = threading.Thread(target=self._work, name="scheduler", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def step_s(self) -> float:
        """How long the step of now has been going on: one that is stuck never ends."""
        since = self._stepping_since
        return 0.0 if since is None else self._clock() - since

    @property
    def busy_s(self) -> float:
        """Seconds that all steps have taken since the start, for whomever."""
        return self._stepped_s + self.step_s

    def admit(  # noqa: PLR0913
        self,
        speech: Steps,
        on_audio: OnAudio,
        end: OnEnd,
        *,
        n_skip: int = 0,
        n_allowed: int | None = None,
        n_before: int = 0,
        is_ready: IsReady = lambda: True,
        around: AroundStep = lambda _is_begun: None,
        is_alone: bool = False,
    ) -> Request:
        """Begin to compute, beside the others; or refuse at once.

        `n_before`: samples before the first that `speech` makes, if it goes on from a checkpoint.
        """
        request = Request(speech, on_audio, end, self._clock(), n_skip, n_allowed, is_ready, around)
        request.n_samples, request.is_alone = n_before, is_alone
        with self._changed:
            if self._is_closed:
                raise BusyError("this scheduler is closing: ask another one")
            if sum(not request.is_cancelled for request in self._requests) >= self._max:
                raise BusyError(f"{self._max} requests are being spoken already: try again soon")
            self._requests.append(request)
            self._changed.notify()
        return request

    def allow(self, request: Request, n_samples: int) -> None:
        """Its listener has room for so many from the beginning; saying it twice changes nothing."""
        with self._changed:
            request.n_allowed = max(n_samples, request.n_allowed or 0)
            self._changed.notify()

    def wake(self) -> None:
        """Something became ready."""
        with self._changed:
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Stop within a step; its `end` is called, and nothing is heard any more."""
        with self._changed:
            request.is_cancelled = True
            request.speech.cancel()
            self._changed.notify()

    def close(self) -> None:
        """Take no more; wait until everything was said."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            self._stepping_since = self._clock()
            batch = [request for request in batch if self._begin(request)]
            if len(batch) > 1:
                batch = self._share(batch)
            for request in batch:
                self._step(request)
            self._stepped_s, self._stepping_since = self.busy_s, None

    def _begin(self, request: Request) -> bool:
        try:
            request.around(True)
        except Exception as error:
            self._finish(request, error)
            request.around(False)
            return False
        return True

    def _share(self, batch: list[Request]) -> list[Request]:
        """Compute the next token or window of each; returns those who have one."""
        try:
            self._share_windows(batch)
            self._share_tokens(batch)
        except Exception as error:  # whose it is, or how far it came, is not known
            for request in batch:
                self._finish(request, error)
                request.around(False)
            return []
        return batch

    def _share_tokens(self, batch: list[Request]) -> None:
        needed = [(it, n) for it in batch if (n := it.speech.token_number) is not None]
        if not needed or self._step_tokens is None:
            return
        begun_at = self._clock()
        events = self._step_tokens([number for _, number in needed])
        spent_ms = 1e3 * (self._clock() - begun_at) / len(batch)
        for (request, _), event in zip(needed, events, strict=True):
            request.speech.give(event, spent_ms)

    def _share_windows(self, batch: list[Request]) -> None:
        needed = [(it, job) for it in batch if (job := it.speech.window_job) is not None]
        if not needed or self._decode_windows is None:
            return
        decoded = self._decode_windows([job for _, job in needed])
        for (request, _), window in zip(needed, decoded, strict=True):
            request.speech.give_window(window)

    def _step(self, request: Request) -> None:
        try:
            chunk = request.speech.step()
        except StopIteration:
            self._finish(request, None)
        except Exception as error:  # one request's, and only its own
            self._finish(request, error)
        else:
            self._give(request, chunk)
        request.around(False)

    def _next(self) -> list[Request]:
        """Who is due first, and those who can share its step; nobody: it is closed."""
        with self._changed:
            while True:
                able = [request for request in self._requests if request.can_go_on]
                if able or (self._is_closed and not self._requests):
                    break
                self._changed.wait()
            # Who was cancelled has one short step left, and then its memory is free.
            able.sort(key=lambda it: (not it.is_cancelled, it.deadline))
            first = able[:1]
            kind = self._kind(first[0]) if first else None
            if kind is None:
                return first
            latest = max(first[0].deadline, self._clock()) + BATCH_HORIZON_S
            mates = (it for it in able if self._kind(it) == kind and it.deadline <= latest)
            return list(islice(mates, MAX_BATCH if kind == _TOKEN else MAX_WINDOWS))

    def _kind(self, request: Request) -> int | None:
        """Of its next step, among those that can be shared; None: it cannot."""
        if request.is_alone or request.is_cancelled:
            return None
        if request.speech.token_number is not None:
            return None if self._step_tokens is None else _TOKEN
        job = request.speech.window_job
        if job is None or job.window.is_last or self._decode_windows is None:
            return None
        return len(job.window.tokens)

    def _give(self, request: Request, chunk: AudioChunk | None) -> None:
        if chunk is None or request.is_cancelled:
            return
        n_known = max(0, request.n_skip - request.n_samples)
        request.n_samples += len(chunk.samples)
        if n_known >= len(chunk.samples):
            return
        if request.first_at is None:
            request.first_at = self._clock()
        request.on_audio(replace(chunk, samples=chunk.samples[n_known:]))

    def _finish(self, request: Request, error: Exception | None) -> None:
        with self._changed:
            self._requests.remove(request)
        request.end(error)
