"""What stands in front of the replicas: HAProxy, as Ray Serve configures it.

Requests with one voice go to one replica. A request that a replica died with is sent to another
one: it is a pure function of its input, so that nobody can see how often it was computed. What
remains to be refused is refused with an error in the shape of the server's own. Knows nothing of
Ray.
"""

from __future__ import annotations

import json

_MAX_LOAD = 125  # percent of the mean that a replica takes of one hash before the next one helps
_MAX_BODY = 65_536  # bytes of a request that HAProxy keeps: to read the voice, and to retry

# What HAProxy answers by itself: status, code, message. 502: a replica died with the request, and
# so did the others that it was sent to; 503: none can be reached.
_ERRORS = (
    (400, "invalid_request", "this is not HTTP", False),
    (408, "request_timeout", "the request did not arrive in time", True),
    (500, "internal", "internal error of the ingress; try again", True),
    (502, "replica_lost", "the replica was lost before its first sound; try again", True),
    (503, "no_replica", "no replica can be reached; try again", True),
    (504, "replica_timeout", "the replica did not answer in time; try again", True),
)


def _http_error(status: int, code: str, message: str, is_temporary: bool) -> str:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    headers = {"x-should-retry": str(is_temporary).lower()}
    if is_temporary:
        headers |= {"retry-after": "1", "retry-after-ms": "1000"}
    pairs = " ".join(f"hdr {name} {value}" for name, value in headers.items())
    body = json.dumps({"error": error})
    return f"http-error status {status} content-type application/json string '{body}' {pairs}"


# Ray writes the algorithm as it stands into HAProxy's section `defaults`; the lines behind it let
# the voice be read from the body, move only the voices of a replica that comes or goes, and stand
# behind Ray's own error pages.
_BALANCE = "\n    ".join([
    "hash req.body,json_query('$.voice')",
    "hash-type consistent sdbm avalanche",
    f"hash-balance-factor {_MAX_LOAD}",
    "option http-buffer-request",
    *(_http_error(*error) for error in _ERRORS),
])  # fmt: skip
# For every process of Ray, before it imports Ray: in a cluster, the environment of its pods.
INGRESS = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": _BALANCE,
    "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(_MAX_BODY),
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "nightingale.fleet.serve_errors:middlewares",
    # Ray starts replicas at a niceness of 15: whatever else runs on the machine would come first.
    "RAY_worker_niceness": "0",
}
