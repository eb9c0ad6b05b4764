"""Real processes, real sockets, real clients."""
