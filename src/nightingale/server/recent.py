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

from nightingale.server.faults import Fault

if TYPE_CHECKING:
    from nightingale.server.front import Order
    from nightingale.server.voices import Voices

_MAX_RECEIPTS = 1000
_MAX_ORDERS = 1000
_MAX_CHARACTERS = 4_000_000  # of all texts that are kept
_KEEP_S = 15 * 60.0

Name = tuple[str, str]  # of the key, and the request's id: clients may choose equal ids


@dataclass(frozen=True, slots=True)
class Repeatable:
    """What was asked, without the voice's data, and which weights answered."""

    order: Order
    fingerprint: Any


class RecentRequests:
    """Of one server."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[Name, dict[str, Any]] = OrderedDict()
        self._orders: OrderedDict[Name, Repeatable] = OrderedDict()
        self._timers: dict[Name, asyncio.TimerHandle] = {}
        self._n_characters = 0

    def __len__(self) -> int:
        return len(self._orders)

    def keep_receipt(self, key_name: str, request_id: str, receipt: dict[str, Any]) -> None:
        """So that who got a body without an end mark can find out whether it was whole."""
        self._receipts[key_name, request_id] = receipt
        while len(self._receipts) > _MAX_RECEIPTS:
            self._receipts.popitem(last=False)

    def receipt(self, key_name: str, request_id: str) -> dict[str, Any] | None:
        return self._receipts.get((key_name, request_id))

    def keep(self, order: Order, fingerprint: Any) -> None:
        """From now on it can be repeated."""
        name = _name(order)
        self._drop(name)
        bare = replace(order, ask=replace(order.ask, voice_file=b""))
        self._orders[name] = Repeatable(bare, fingerprint)
        self._n_characters += order.n_characters
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(_KEEP_S, self._drop, name)
        while len(self._orders) > _MAX_ORDERS or self._n_characters > _MAX_CHARACTERS:
            self._drop(next(iter(self._orders)))

    def repeat(self, key_name: str, request_id: str, voices: Voices, fingerprint: Any) -> Order:
        """The same request once more; a fault if it would not give the same bytes."""
        kept = self._orders.get((key_name, request_id))
        if kept is None:
            minutes = round(_KEEP_S / 60)
            raise Fault(
                404,
                "not_found",
                f"there is no request with this id of the last {minutes} minutes; ask for the "
                "whole text again",
            )
        if kept.fingerprint != fingerprint:
            raise Fault(
                410,
                "model_changed",
                "another model, version or kind of processor would give other bytes; ask for the "
                "whole text again",
            )
        ask, data = kept.order.ask, b""
        if ask.voice is not None:
            found = voices.find(kept.order.voice_name, kept.order.key)
            if found.digest != ask.voice:
                raise Fault(410, "voice_changed", "the voice has changed since; ask again")
            data = found.data
        return replace(kept.order, ask=replace(ask, voice_file=data))

    def _drop(self, name: Name) -> None:
        kept = self._orders.pop(name, None)
        if kept is not None:
            self._n_characters -= kept.order.n_characters
            self._timers.pop(name).cancel()


def _name(order: Order) -> Name:
    return order.key.name, order.request_id
