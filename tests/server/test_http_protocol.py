"""Limits on the wire, over real sockets, with an application that does nothing of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from websockets.sync.client import connect

from nightingale.server.connections import ConnectionLimits, Connections, network_of
from tests.server.edge import Edge, edge, is_closed_after, read_all

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
QUICK = ConnectionLimits(head_s=0.6, body_s=0.6, min_body_rate=10_000, keep_alive_s=1)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads what is sent; answers with its length, or echoes messages of a WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": str(len(message.get("text") or ""))})
        return
    n_bytes, more = 0, scope["path"] != "/unread"
    while more:
        message = await receive()
        n_bytes, more = n_bytes + len(message.get("body", b"")), message.get("more_body", False)
    body = b"x" * 30_000_000 if scope["path"] == "/large" else str(n_bytes).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def plain() -> Iterator[Edge]:
    with edge(app) as it:
        yield it


@pytest.fixture(scope="module")
def quick() -> Iterator[Edge]:
    with edge(app, QUICK) as it:
        yield it


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@pytest.mark.parametrize("upgrade", [b"", b"connection: upgrade\r\nupgrade: websocket\r\n"])
@pytest.mark.parametrize(
    "head",
    [b"a: " + b"x" * 33_000 + b"\r\n", b"a: b\r\n" * 100, b"a" * 33_000 + b": b\r\n",
     b"a: " + b"x" * 330 + b"\r\n" + (b"b: " + b"y" * 1000 + b"\r\n") * 40],
    ids=["one long value", "100 lines more", "one long name", "40 KB in lines"],
)  # fmt: skip
def test_a_large_head_is_431(plain: Edge, head: bytes, upgrade: bytes) -> None:
    """CVE-2025-48956: no limit, and every byte kept."""
    answer = plain.exchange(GET + upgrade + head + b"\r\n")
    assert status(answer) == 431
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "head_too_large"


@pytest.mark.slow
def test_a_long_url_is_431_and_a_usual_head_is_not(plain: Edge) -> None:
    assert status(plain.exchange(b"GET /" + b"u" * 33_000 + GET[5:] + b"\r\n")) == 431
    usual = b"".join(b"h%d: " % n + b"v" * 300 + b"\r\n" for n in range(98))
    assert status(plain.exchange(GET + usual + b"\r\n")) == 200
    assert status(plain.exchange(GET + b"cookie: " + b"c" * 31_000 + b"\r\n\r\n")) == 200


def test_a_head_without_end_is_cut_where_the_limit_is(plain: Edge) -> None:
    """300 MB were taken; now the client cannot even send a few."""
    with plain.connect() as client:
        client.sendall(GET + b"a: ")
        n_sent = 0
        with pytest.raises(OSError):
            while n_sent < 300_000_000:
                n_sent += client.send(b"x" * 2**16)
    assert n_sent < 20_000_000  # what fits into the buffers of the kernel


@pytest.mark.slow
def test_a_body_in_the_same_read_is_no_head(plain: Edge) -> None:
    post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000
    answer = plain.exchange(post + post)
    assert answer.count(b"200 OK") == 2
    assert answer.count(b"200000") == 2


@pytest.mark.slow
def test_the_next_head_has_its_own_limit(plain: Edge) -> None:
    body = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000
    answer = plain.exchange(body + GET + b"a: " + b"x" * 90_000 + b"\r\n\r\n")
    assert answer.count(b"200 OK") <= 1
    assert b"90000" not in answer
    with plain.connect() as client:
        for _ in range(5):  # 100 KB of heads, one after the other
            client.sendall(GET + b"a: " + b"x" * 20_000 + b"\r\n\r\n")
            assert status(read_all(client, 0.2)) == 200


@pytest.mark.slow
def test_requests_that_are_sent_ahead_are_few(plain: Edge) -> None:
    answer = plain.exchange((GET + b"\r\n") * 10)
    assert answer.count(b"200 OK") == 10
    slow = GET.replace(b"GET /", b"GET /slow") + b"\r\n"
    with plain.connect() as client:
        client.sendall(slow + (GET + b"\r\n") * 5000)
        assert is_closed_after(client, 10) is not None


@pytest.mark.slow
def test_slow_heads_slow_bodies_and_idle_connections_are_closed(quick: Edge) -> None:
    post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"

    def trickle(first: bytes, drop: bytes = b"x") -> tuple[float, bytes]:
        begun = time.monotonic()
        with quick.connect() as client:
            client.settimeout(0.1)
            answer = b""
            try:
                client.sendall(first)
                while time.monotonic() - begun < 15:
                    client.sendall(drop)
                    try:
                        data = client.recv(2**16)
                        if not data:
                            break
                        answer += data
                    except TimeoutError:
                        pass
            except ConnectionError:
                pass
            return time.monotonic() - begun, answer

    attacks = [(GET, b"x"), (post, b"x"), (b"", b""), (b"", b"\r\n"), (GET + b"\r\n", b"\r\n"),
               (post.replace(b"/", b"/unread", 1), b"x"), (b"GET / HT", b"")]  # fmt: skip
    with ThreadPoolExecutor(len(attacks)) as pool:
        done = list(pool.map(lambda given: trickle(*given), attacks))
    for (first, drop), (seconds, answer) in zip(attacks, done, strict=True):
        assert seconds < 10, (first, drop)  # without the limits: never
        is_head = first.startswith(GET) and not first.endswith(b"\r\n\r\n")
        assert not is_head or status(answer) == 408


@pytest.mark.slow
def test_a_body_may_take_longer_if_it_comes_fast_enough(quick: Edge) -> None:
    with quick.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 40000\r\n\r\n")
        for _ in range(40):
            client.sendall(b"x" * 1000)
            time.sleep(0.06)  # 2.4 s in all, more than body_s and its second of grace
        assert b"40000" in read_all(client)


@pytest.mark.slow
def test_a_stray_line_end_after_a_body_does_not_end_a_long_answer(quick: Edge) -> None:
    """Some clients send one; the head's time must not run while another answer is sent."""
    post = b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx\r\n"
    with quick.connect() as client:
        client.sendall(post)
        assert read_all(client, 3.0).endswith(b"\r\n1\r\n0\r\n\r\n")


BUSY = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"  # and no body


@pytest.mark.slow
def test_connections_per_address_and_in_all_are_limited() -> None:
    with edge(app, ConnectionLimits(max_connections=5, max_per_address=3)) as it:
        clients = [it.connect() for _ in range(3)]
        for client in clients:
            client.sendall(BUSY)
        assert wait_until(lambda: len(it.connections) == 3)
        time.sleep(0.2)
        refused = it.exchange(b"")
        assert (status(refused), b"retry-after: 1" in refused) == (429, True)
        clients.pop().close()
        assert wait_until(lambda: status(it.exchange(GET + b"\r\n")) == 200)
        for client in clients:
            client.close()
    with edge(app, ConnectionLimits(max_connections=2)) as it:
        with it.connect() as one, it.connect() as two:
            one.sendall(BUSY)
            two.sendall(BUSY)
            time.sleep(0.2)
            assert status(it.exchange(GET + b"\r\n")) == 503
        assert wait_until(lambda: status(it.exchange(GET + b"\r\n")) == 200)


@pytest.mark.slow
@pytest.mark.parametrize("held", [b"", GET, GET + b"\r\n"], ids=["silent", "head", "kept alive"])
def test_idle_connections_make_room(held: bytes) -> None:
    """2,000 idle connections of one client must not keep anybody out."""
    with edge(app, ConnectionLimits(max_connections=5)) as it:
        busy = it.connect()
        busy.sendall(BUSY)
        idle = [it.connect() for _ in range(4)]
        for client in idle:
            client.sendall(held)
        assert wait_until(lambda: len(it.connections) == 5)
        time.sleep(0.2)
        for _ in range(6):
            assert status(it.exchange(GET + b"\r\n")) == 200
        busy.sendall(b"x" * 9)
        assert status(read_all(busy)) == 200  # what works is left alone
        for client in (busy, *idle):
            client.close()


@pytest.mark.slow
def test_an_answer_that_is_being_read_is_not_idle() -> None:
    with edge(app, ConnectionLimits(max_connections=1)) as it, it.connect() as slow:
        slow.sendall(GET.replace(b"GET /", b"GET /large") + b"\r\n")
        time.sleep(0.5)
        assert status(it.exchange(GET + b"\r\n")) == 503
        assert len(read_all(slow, 1.0)) > 30_000_000


@pytest.mark.slow
def test_websockets_count_as_connections_until_they_are_closed() -> None:
    with edge(app, ConnectionLimits(max_connections=1)) as it:
        with connect(f"ws://127.0.0.1:{it.port}/") as client:
            client.send("abc")
            assert client.recv() == "3"
            assert status(it.exchange(GET + b"\r\n")) == 503
        assert wait_until(lambda: status(it.exchange(GET + b"\r\n")) == 200)


@pytest.mark.slow
def test_an_answer_that_nobody_reads_is_aborted() -> None:
    """30 MB were kept for ever, and SIGTERM waited for them."""
    with edge(app, stall_s=0.5) as it:
        never = it.connect()
        never.sendall(GET.replace(b"GET /", b"GET /large") + b"\r\n")
        closing = it.connect()
        closing.sendall(GET.replace(b"GET /", b"GET /large") + b"connection: close\r\n\r\n")
        assert wait_until(lambda: len(it.connections) == 2)
        assert wait_until(lambda: len(it.connections) == 0)
        for client in (never, closing):
            assert len(read_all(client)) < 30_000_000
            client.close()
        slow = it.connect()  # but who reads a little now and then may go on
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        slow.sendall(GET.replace(b"GET /", b"GET /large") + b"\r\n")
        n_read, until = 0, time.monotonic() + 2.5
        while time.monotonic() < until:
            n_read += len(slow.recv(2**20))
            time.sleep(0.05)
        assert n_read + len(read_all(slow, 1.0)) > 30_000_000
        slow.close()


@pytest.mark.slow
def test_too_much_that_is_unsent_ends_the_largest() -> None:
    with edge(app, max_unsent=40_000_000) as it:
        clients = [it.connect() for _ in range(3)]
        for client in clients:
            client.sendall(GET.replace(b"GET /", b"GET /large") + b"\r\n")
        assert wait_until(lambda: len(it.connections) == 3)
        assert wait_until(lambda: len(it.connections) == 1)
        for client in clients:
            client.close()


FRAME = b"\x81\x82\x00\x00\x00\x00{}"  # text, masked with zeros
SHAKE = (
    GET + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("frame", [FRAME, b"\x89\x80\x00\x00\x00\x00"], ids=["text", "ping"])
def test_a_flood_of_frames_is_read_slowly_and_costs_others_nothing(frame: bytes) -> None:
    """16,000 messages a second made everybody else wait for one to two seconds."""
    with edge(app) as it, it.connect() as flood, it.connect() as other:
        flood.sendall(SHAKE)
        assert status(read_all(flood, 0.2)) == 101
        flood.settimeout(0.05)
        until, n_sent, waits = time.monotonic() + 2, 0, []
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                n_sent += flood.send(frame * 10_000)
            asked = time.monotonic()
            other.sendall(GET + b"\r\n")
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += other.recv(2**16)
            waits.append(time.monotonic() - asked)
        n_taken = len(read_all(flood)) // 3  # bytes of an answer
        assert n_taken < 1000 + 200 * 6 + 400  # burst, rate, and one piece
        assert sorted(waits)[len(waits) // 2] < 0.05  # 0.3 s without the limit


@pytest.mark.slow
def test_messages_at_the_rate_of_a_language_model_are_not_slowed() -> None:
    with edge(app) as it, connect(f"ws://127.0.0.1:{it.port}/") as client:
        begun = time.monotonic()
        for _ in range(900):
            client.send("ab")
        for _ in range(900):
            assert client.recv(timeout=20) == "2"
        assert time.monotonic() - begun < 3  # paced at 200 a second it would be 4.5 s


def test_a_websocket_request_that_is_wrong_is_answered_and_closed(plain: Edge) -> None:
    long = SHAKE.replace(b"\r\n\r\n", b"\r\na: " + b"x" * 9000 + b"\r\n\r\n")
    assert status(plain.exchange(long)) == 431
    for wrong in (SHAKE.replace(b"13", b"99"), SHAKE.replace(b"AAAA==", b"A")):
        with plain.connect() as client:
            client.sendall(wrong)
            assert is_closed_after(client, 10) is not None


def test_client_addresses_are_counted_by_network_in_ipv6() -> None:
    assert network_of("203.0.113.9") == network_of("::ffff:203.0.113.9") == "203.0.113.9"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") == "2001:db8::/64"
    assert network_of("::1") == "::1"


class Wire(asyncio.Transport):
    """A transport of some address; nothing is sent."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1)})

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def test_64_connections_per_address_unless_it_is_loopback() -> None:
    async def main() -> None:
        connections = Connections(ConnectionLimits(), 60.0)
        faults = [connections.add(Wire("203.0.113.9")) for _ in range(65)]  # none of them idle
        assert [fault is None for fault in faults] == [True] * 64 + [False]
        assert connections.add(Wire("203.0.113.10")) is None
        assert all(connections.add(Wire("127.0.0.1")) is None for _ in range(200))

    asyncio.run(main())


def wait_until(holds: Any, within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
