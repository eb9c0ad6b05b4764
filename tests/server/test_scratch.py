"""Temporary folders: of servers that run, and of those that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from nightingale.server.scratch import private_folder

HOLDER = """
import sys, time
from pathlib import Path
from nightingale.server.scratch import private_folder
with private_folder(Path(sys.argv[1])) as folder:
    (folder / "1.sock").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_folders_of_killed_servers_are_removed_and_others_are_not(tmp_path: Path) -> None:
    stranger = tmp_path / "nightingale-of-somebody-else"
    stranger.mkdir()
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        folders = []
        for holder in holders:
            assert holder.stdout is not None
            folders.append(Path(holder.stdout.readline().strip()))
        os.kill(holders[0].pid, signal.SIGKILL)
        holders[0].wait()
        assert folders[0].exists()
        with private_folder(tmp_path) as own:
            assert own.stat().st_mode & 0o777 == 0o700
            assert not folders[0].exists()
            assert folders[1].exists()
            assert stranger.exists()
        assert not own.exists()
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
