"""Sockets in front, a process with the model behind; needs the extra `server`."""
