"""Sockets that listen before anything else is done, so that a port in use is known at once.

Who connects before the model is loaded waits in the socket's queue. Knows nothing of protocols,
and imports nothing that takes time.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from nightingale.errors import AddressError

_BACKLOG = 2048
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # localhost, without IPv6


def listen(host: str, port: int, port_option: str = "--port") -> list[socket.socket]:
    """A listening socket for each address of the host; port 0 takes one that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AddressError(f"the host {host!r} cannot be resolved: {error.strerror}") from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            taken = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listening(family, (address[0], taken, *address[2:])))
        except OSError as error:
            failure = error
            if error.errno not in _NO_SUCH_FAMILY:
                break
    if sockets and (failure is None or failure.errno in _NO_SUCH_FAMILY):
        return sockets
    close(sockets)
    assert failure is not None
    raise AddressError(_explained(failure, host, port, port_option)) from failure


def close(sockets: list[socket.socket]) -> None:
    for listener in sockets:
        listener.close()


def port_of(sockets: list[socket.socket]) -> int:
    """The port that was taken."""
    return int(sockets[0].getsockname()[1])


def url(host: str, port: int) -> str:
    """Where a browser on this machine finds it."""
    shown = "localhost" if host in ("", "0.0.0.0", "::") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def is_loopback(host: str) -> bool:
    """An address or name that only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    # Named, or asyncio leaves TCP_NODELAY off, and the first sound comes 40 ms after its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _explained(failure: OSError, host: str, port: int, port_option: str) -> str:
    if failure.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use, perhaps by another `nightingale serve`; stop that "
            f"program or take another port with {port_option}"
        )
    if failure.errno == errno.EACCES:
        return f"port {port} is not permitted for this user; take one above 1023 ({port_option})"
    return f"cannot listen on {host}, port {port}: {failure.strerror}"
