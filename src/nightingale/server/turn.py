"""One utterance's way to the worker: it holds a slot while it is computed, and none otherwise.

What the utterance sends (text, buffer space, a cancel) goes to the worker while it holds a slot.
Without one it is kept here until the slot is granted, so that the worker has nothing to do for it.
Knows nothing of sockets; what is said is the utterance's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import BusyError
from nightingale.server.admission import Admission
from nightingale.server.load import Demand
from nightingale.server.utterance import Blame, Outcome, Send, Utterance
from nightingale.server.worker_protocol import Message
from nightingale.server.worker_request import WorkerRequest

_LATE_S = 2.0  # behind playback: who takes so late what is there does not play it as it comes
_ESTIMATE_S = 0.5
_LEAST_S = 1.0  # of sound that is still to be made, while an utterance is not over


class Turn:
    """Made with the utterance; opened when somebody listens to it."""

    def __init__(self, number: int, job: WorkerRequest, send: Send) -> None:
        """`send` leads to whatever worker there is."""
        self._send = send
        self.utterance = Utterance(number, job, self.send)
        self._hand_over: Callable[[Utterance], None] = lambda _utterance: None
        self._held: list[Message] = []  # for the worker, when it computes this one again
        self.is_at_worker = False  # which has the request, and all of its text that is not held
        self._is_out_of_text = False  # the worker has said so
        self._n_sent = 0  # characters that the worker has
        self._begun_at: float | None = None
        self._expected = (-math.inf, 0.0)  # when the length of the whole was estimated, and it

    def reserve(
        self,
        admission: Admission,
        owner: str,
        hand_over: Callable[[Utterance], None],
        *,
        is_reserved: bool = False,
    ) -> None:
        """Open it: somebody listens from now on. Refused if too many utterances are open."""
        self._admission, self._hand_over = admission, hand_over
        self._slot = admission.open(
            owner, self.demand, self._on_grant, self._on_refuse, is_reserved=is_reserved
        )

    def start(self) -> None:
        """Compute it as soon as there is text and a slot."""
        if self.utterance.is_cancelled:
            self._finish_here()
        self._request_if_needed()

    def close(self) -> None:
        """Nobody listens any more."""
        if self.utterance.outcome is None and self.is_at_worker:
            self._send({"kind": "cancel", "id": self.utterance.number})
        if self._begun_at is not None:
            self._admission.note_duration(time.monotonic() - self._begun_at)
        self._slot.close()

    @property
    def is_open(self) -> bool:
        return hasattr(self, "_slot")

    @property
    def is_running(self) -> bool:
        """Computed by the worker, or about to be."""
        return self._slot.is_running

    def demand(self) -> Demand:
        """What it needs to be gapless; nothing while it waits for text or for a slow reader."""
        utterance = self.utterance
        is_over = utterance.outcome is not None or utterance.is_cancelled
        if is_over or self._is_out_of_text or self._is_without_text:
            return Demand(0.0, 0.0)
        untaken_s = (utterance.n_received - utterance.n_given) / SAMPLES_PER_SECOND
        given_s = utterance.clock.left_s(time.monotonic())
        if given_s < -_LATE_S and not utterance.can_produce:
            return Demand(untaken_s, 0.0)
        remaining_s = max(_LEAST_S, self._expected_s - utterance.n_received / SAMPLES_PER_SECOND)
        return Demand(max(0.0, given_s) + untaken_s, remaining_s, utterance.speed)

    @property
    def _expected_s(self) -> float:
        """The whole of it, as far as it is written; estimated now and then, for text is split."""
        now = time.monotonic()
        if now - self._expected[0] > _ESTIMATE_S:
            self._expected = now, sum(self.utterance.parts_s)
        return self._expected[1]

    # What the utterance calls.

    def send(self, message: Message) -> None:
        """To the worker now, or when there is a slot."""
        if not self.is_open:
            return  # the request will contain it
        if message["kind"] == "cancel":
            self._cancel(message)
        elif self._slot.is_running and self.is_at_worker:
            self._forward(message)
        else:
            if self.is_at_worker:
                self._hold(message)
            self._request_if_needed()

    def _forward(self, message: Message) -> None:
        if message["kind"] == "text":
            self._is_out_of_text = False
            self._n_sent += len(message["text"])
        self._send(message)

    def _hold(self, message: Message) -> None:
        """Of buffer space, the last message says all."""
        if message["kind"] == "allow":
            self._held = [held for held in self._held if held["kind"] != "allow"]
        self._held.append(message)

    def _cancel(self, message: Message) -> None:
        if self.is_at_worker:
            self._send(message)  # the worker ends it within a step, and needs no slot for that
        else:
            self._finish_here()
        self._slot.release()

    def _finish_here(self) -> None:
        if self.utterance.outcome is None:
            self.utterance.finish(Outcome("cancelled", self.utterance.n_received))

    # What the dispatcher calls.

    def note_idle(self, n_characters: int) -> None:
        """The worker has spoken what there is, of so many characters; more may be under way."""
        if self.utterance.job.is_open and n_characters == self._n_sent:
            self._is_out_of_text = True
            self.check()

    def check(self) -> None:
        """Give the slot back if there is nothing to compute, or no space for it."""
        utterance = self.utterance
        is_over = utterance.outcome is not None
        if is_over or self._is_out_of_text or not utterance.can_produce:
            self._slot.release()
            self._request_if_needed()

    def on_worker_lost(self, blame: Blame | None = None) -> bool:
        """The worker died, perhaps because of this one; True if the next one is needed at once."""
        if not self.is_at_worker:
            return False
        self._held.clear()
        self.is_at_worker = False
        return self.utterance.on_worker_lost(blame) and self._slot.is_running

    def asking(self) -> Message:
        """The whole request, for a worker that does not have it."""
        self.is_at_worker, self._is_out_of_text = True, False
        self._held.clear()
        self._n_sent = sum(map(len, self.utterance.job.text))
        return self.utterance.asking()

    # Its slot.

    @property
    def _is_without_text(self) -> bool:
        job = self.utterance.job
        return job.is_open and not any(job.text)

    def _request_if_needed(self) -> None:
        utterance = self.utterance
        if utterance.outcome is not None or utterance.is_cancelled or not utterance.can_produce:
            return
        has_text = any(message["kind"] == "text" for message in self._held)
        is_idle = self._is_out_of_text and not has_text
        if not is_idle and not self._is_without_text:
            self._slot.request()

    def _on_grant(self) -> None:
        self._begun_at = self._begun_at or time.monotonic()
        if not self.is_at_worker:
            self._hand_over(self.utterance)
            return
        held, self._held = self._held, []
        for message in held:
            self._forward(message)

    def _on_refuse(self, error: BusyError) -> None:
        if self.utterance.outcome is None:
            self.utterance.fail(error)
