"""Found first by a Python that `scripts/unplugged` starts: whoever connects, fails."""

import sys


def _refuse(event: str, _: object) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        raise OSError("the network is unplugged")


sys.addaudithook(_refuse)
