"""Requests of late: how each ended, and what is needed to repeat it.

A request is a pure function, so a response that broke off can be continued by computing it again
and leaving out the bytes that the client has. What was asked is kept in memory only, for a few
minutes, bounded in number and size, and found by the API key that asked. Voices are kept by name
and hash, not by their data: a deleted voice cannot be spoken with any more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nightingale.server.api_errors import APIError
from nightingale.server.voices import VoiceFile

if TYPE_CHECKING:
    from nightingale.server.context import SpeechRequest
    from nightingale.server.keys import Key
    from nightingale.server.voices import Voices

_MAX_RECEIPTS = 1000
_MAX_REQUESTS = 1000
_MAX_CHARACTERS = 4_000_000  # of all texts that are kept
_KEEP_S = 15 * 60.0

Name = tuple[str, str]  # of the key, and the request's id: clients may choose equal ids


@dataclass(frozen=True, slots=True)
class Repeatable:
    """What was asked, without the voice's data, and which weights answered."""

    request: SpeechRequest
    fingerprint: Any


class RecentRequests:
    """Of one server."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[Name, dict[str, Any]] = OrderedDict()
        self._requests: OrderedDict[Name, Repeatable] = OrderedDict()
        self._timers: dict[Name, asyncio.TimerHandle] = {}
        self._n_characters = 0

    def __len__(self) -> int:
        return len(self._requests)

    def keep_receipt(self, key_name: str, request_id: str, receipt: dict[str, Any]) -> None:
        """So that who got a body without an end mark can find out whether it was whole."""
        self._receipts[key_name, request_id] = receipt
        while len(self._receipts) > _MAX_RECEIPTS:
            self._receipts.popitem(last=False)

    def receipt(self, key_name: str, request_id: str) -> dict[str, Any] | None:
        return self._receipts.get((key_name, request_id))

    def keep(self, request: SpeechRequest, fingerprint: Any) -> None:
        """From now on it can be repeated."""
        name = _name(request)
        self._drop(name)
        named = {name: replace(file, data=b"") for name, file in request.job.voices.items()}
        bare = replace(request, job=replace(request.job, voice_file=b"", voices=named))
        self._requests[name] = Repeatable(bare, fingerprint)
        self._n_characters += request.n_characters
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(_KEEP_S, self._drop, name)
        while len(self._requests) > _MAX_REQUESTS or self._n_characters > _MAX_CHARACTERS:
            self._drop(next(iter(self._requests)))

    def repeat(
        self, key_name: str, request_id: str, voices: Voices, fingerprint: Any
    ) -> SpeechRequest:
        """The same request once more; an APIError if it would not give the same bytes."""
        kept = self._requests.get((key_name, request_id))
        if kept is None:
            minutes = round(_KEEP_S / 60)
            raise APIError(
                404,
                "not_found",
                f"there is no request with this id of the last {minutes} minutes; ask for the "
                "whole text again",
            )
        if kept.fingerprint != fingerprint:
            raise APIError(
                410,
                "model_changed",
                "another model, version or kind of processor would give other bytes; ask for the "
                "whole text again",
            )
        job, key = kept.request.job, kept.request.key
        own = _same(kept.request.voice_name, job.voice, voices, key)
        named = {name: _same(name, file.digest, voices, key) for name, file in job.voices.items()}
        return replace(kept.request, job=replace(job, voice_file=own.data, voices=named))

    def _drop(self, name: Name) -> None:
        kept = self._requests.pop(name, None)
        if kept is not None:
            self._n_characters -= kept.request.n_characters
            self._timers.pop(name).cancel()


def _same(name: str | None, digest: str | None, voices: Voices, key: Key) -> VoiceFile:
    """A voice that still has the content of then."""
    if digest is None:
        return VoiceFile()
    found = voices.find(name, key)
    if found.digest != digest:
        raise APIError(410, "voice_changed", "the voice has changed since; ask again")
    return found


def _name(request: SpeechRequest) -> Name:
    return request.key.name, request.request_id
