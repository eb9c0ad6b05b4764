"""`say`, `voice` and `doctor` as a person uses them, on small models that lie on disk."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import soundfile
import typer
from typer.testing import CliRunner, Result

from nightingale.cli import app, player
from nightingale.weights import manifest
from tests.tiny_release import Releases

TEXT = "The billing issue is resolved."

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def release(releases: Releases) -> Path:
    return releases("english")


@pytest.fixture
def run(tmp_path: Path, release: Path) -> Run:
    def call(*arguments: str | Path, text: str | None = None) -> Result:
        # Random weights know no end.
        short = ("--max-tokens", "10") if arguments[0] == "say" else ()
        return CliRunner().invoke(
            app,
            [str(argument) for argument in (*arguments, *short)],
            input=text,
            env={"NIGHTINGALE_HOME": str(tmp_path / "home")},
        )

    return call


def test_say_writes_a_file(run: Run, release: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.wav"
    result = run("say", TEXT, "-o", file, "--model", release, "--seed", "3")
    assert (result.exit_code, result.stdout) == (0, "")
    info = soundfile.info(file)
    assert (info.samplerate, info.channels, info.subtype) == (24_000, 1, "PCM_16")
    assert info.frames % 960 == 0


@pytest.mark.slow
def test_say_reads_standard_input_and_writes_standard_output(run: Run, release: Path) -> None:
    """The same words by another way are the same bytes."""
    piped = run("say", "-", "-o", "-", "--model", release, "--format", "pcm", text=TEXT)
    typed = run("say", TEXT, "-o", "-", "--model", release, "--format", "pcm")
    assert piped.exit_code == 0, piped.stderr
    assert len(piped.stdout_bytes) > 0
    assert piped.stdout_bytes == typed.stdout_bytes
    plan, cut = piped.stderr.splitlines()  # and nothing else: no bar in a pipe
    assert plan.startswith("plan auto on cpu")
    assert "cut off" in cut


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--stream",)])
def test_say_speaks_without_unknown_characters_and_lists_them(
    run: Run, release: Path, how: tuple[str, ...]
) -> None:
    end = ("-o", "-", "--model", release, "--format", "pcm", "--language", "en-US", *how)
    result = run("say", "It is 20° [ok] 🎉 here.", *end)
    assert result.exit_code == 0, result.stderr
    assert "Not spoken (unknown to this model): ° 🎉\n" in result.stderr
    plain = run("say", "It is 20 ok here.", *end)
    assert result.stdout_bytes == plain.stdout_bytes
    assert "Not spoken" not in plain.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speech.flac", "speech.mp3", "speech.opus", "speech.ulaw"])
def test_the_files_name_chooses_the_format(
    run: Run, release: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    assert run("say", TEXT, "-o", file, "--model", release).exit_code == 0
    assert file.stat().st_size > 100


@pytest.mark.parametrize(
    "changes",
    [
        [("--seed", "9")],
        pytest.param(
            [("--temperature", "0.1"), ("--cfg-weight", "0"), ("--no-watermark",)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_options_reach_the_model(run: Run, release: Path, changes: list[tuple[str, ...]]) -> None:
    base = ("say", TEXT, "-o", "-", "--model", release, "--format", "pcm")
    plain = run(*base).stdout_bytes
    for change in changes:
        assert run(*base, *change).stdout_bytes != plain, change


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("say", "", "-o", "-"), "nothing to say"),
        (("say", TEXT, "-o", "x.doc"), "known endings"),
        (("say", TEXT, "-o", "-", "--format", "tape"), "there is no format 'tape'"),
        (("say", TEXT, "-o", "-", "--temperature", "-3"), "temperature is -3.0"),
        (("say", TEXT, "-o", "-", "--exaggeration", "11"), "exaggeration is 11.0"),
        (("say", TEXT, "-o", "-", "--voice", "nobody"), "there is no voice 'nobody'"),
        (("say", TEXT, "-o", "-", "--language", "de"), "does not speak 'de'"),
        (("say", TEXT, "-o", "-", "--device", "abacus"), "there is no device 'abacus'"),
        (("say", TEXT, "-o", "-", "--plan", "zip"), "there is no plan 'zip'"),
        (("say", TEXT, "-o", "-", "--decoder", "none"), "there is no decoder 'none'"),
        (("say", TEXT, "-o", "nowhere/a.wav"), "there is no folder"),
        (("say", TEXT, "-o", "."), "is a folder"),
        (("say", "hello", "world", "-o", "-"), 'in quotes: nightingale say "hello world"'),
        (("say", "-o", "-"), "there is no text"),
        (("say", TEXT, "--file", "a.txt", "-o", "-"), "there are two texts"),
        (("say", "--file", "nowhere.txt", "-o", "-"), "nowhere.txt cannot be read"),
        (("say", "你好，世界。", "-o", "-"), "does not know 你 好 世 界"),
        (("say", "Привет", "-o", "-", "--stream", "--format", "pcm"), "the language ru"),
        (("say", "🎉🎉", "-o", "-"), "nothing to say"),
        (("say", "...", "-o", "-"), "nothing to say"),
        (("say", TEXT, "-o", "-", "--decoder", "meanflow"), "s3gen_meanflow.safetensors"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(
    run: Run, release: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments, "--model", release)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_without_a_model_the_command_that_brings_one_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "BUNDLE", tmp_path / "empty")
    result = run("say", TEXT, "-o", "-")
    assert result.exit_code == 1
    assert "nightingale pull multilingual" in result.stderr


@pytest.mark.slow
def test_a_player_is_used_when_nothing_else_is_asked_for(
    run: Run, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real program found on the path, which keeps what it is given to play."""
    heard = tmp_path / "heard.wav"
    program = tmp_path / "bin/aplay"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncp "$2" {heard}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")
    assert run("say", TEXT, "--model", release).exit_code == 0
    assert soundfile.info(heard).frames > 0
    monkeypatch.setenv("PATH", "/nowhere")
    silent = run("say", TEXT, "--model", release)
    assert silent.exit_code == 1
    assert "-o FILE" in silent.stderr


@pytest.mark.slow
def test_a_stream_is_what_is_said(run: Run, release: Path, tmp_path: Path) -> None:
    to_pipe = ("-o", "-", "--model", release, "--format", "pcm")
    said = run("say", TEXT, "--plan", "live", *to_pipe)
    streamed = run("say", TEXT, "--stream", *to_pipe)
    assert streamed.exit_code == 0, streamed.stderr
    assert len(said.stdout_bytes) > 0
    assert streamed.stdout_bytes == said.stdout_bytes
    file = tmp_path / "out.pcm"
    assert run("say", TEXT, "--stream", "-o", file, "--model", release).exit_code == 0
    assert file.read_bytes() == said.stdout_bytes
    typed = run("say", "-", "--stream", *to_pipe, text=TEXT)
    assert typed.stdout_bytes == said.stdout_bytes


@pytest.mark.slow
def test_a_stream_is_played_as_it_comes(
    run: Run, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = tmp_path / "heard.wav"
    monkeypatch.setattr(player, "_LIVE_PLAYERS", (("tee", str(heard)),))
    monkeypatch.setattr(player, "_PLAYERS", ())
    result = run("say", TEXT, "--stream", "--model", release)
    assert result.exit_code == 0, result.stderr
    assert soundfile.read(io.BytesIO(heard.read_bytes()))[0].any()
    monkeypatch.setattr(player, "_LIVE_PLAYERS", (("true",),))  # its listener closes it at once
    assert run("say", TEXT, "--stream", "--model", release).exit_code == 0
    monkeypatch.setattr(player, "_LIVE_PLAYERS", (("false",),))
    failed = run("say", TEXT, "--stream", "--model", release)
    assert (failed.exit_code, "false" in failed.stderr) == (1, True)
    monkeypatch.setattr(player, "_LIVE_PLAYERS", ())
    none = run("say", TEXT, "--stream", "--model", release)
    assert (none.exit_code, "-o -" in none.stderr) == (1, True)
    copy = tmp_path / "copy"
    copy.write_text(f'#!/bin/sh\ncp "$1" {heard}.2\n')
    copy.chmod(0o755)
    monkeypatch.setattr(player, "_PLAYERS", ((str(copy),),))  # afplay takes no stream either
    late = run("say", TEXT, "--stream", "--model", release)
    assert (late.exit_code, "played when all is spoken" in late.stderr) == (0, True)
    assert (soundfile.read(f"{heard}.2")[0] == soundfile.read(heard)[0]).all()


@pytest.mark.slow
def test_a_voice_lives_from_add_to_remove(
    run: Run, release: Path, tmp_path: Path, recording: Path
) -> None:
    added = run("voice", "add", "anna", recording, "--model", release, "--consent", "it is me",
                "--language", "en")  # fmt: skip
    assert added.exit_code == 0, added.stderr
    assert 'Voice "anna" saved: 4.0 s of recording' in added.stderr
    assert re.search(r"gain [+-]\d+\.\d dB applied \(recording -\d", added.stderr)
    assert f'Try: nightingale say "Hello, it is me." --voice anna --model {release}' in added.stderr
    assert "consent" not in added.stderr
    listed = run("voice", "list").stdout.splitlines()[1].split()
    assert (listed[:3], listed[4:]) == (["anna", "english", "en"], ["it", "is", "me"])
    say = ("say", TEXT, "-o", "-", "--model", release, "--format", "pcm")
    cloned = run(*say, "--voice", "anna").stdout_bytes
    assert cloned != run(*say).stdout_bytes
    exported = tmp_path / "anna.safetensors"
    assert run("voice", "export", "anna", exported).exit_code == 0
    assert run("voice", "add", "anna", exported).exit_code == 1  # the name is taken
    assert run("voice", "remove", "anna").exit_code == 0
    home = tmp_path / "home"
    assert not any(b"it is me" in file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert run("voice", "add", "twin", exported).exit_code == 0
    assert run(*say, "--voice", "twin").stdout_bytes == cloned


@pytest.mark.slow
def test_a_poor_recording_is_warned_about(
    run: Run, release: Path, tmp_path: Path, recording: Path
) -> None:
    wave, rate = soundfile.read(recording)
    loud = tmp_path / "loud.wav"
    soundfile.write(loud, (wave[: 2 * rate] * 20).clip(-1, 1), rate)
    result = run("voice", "add", "loud", loud, "--model", release)
    assert result.exit_code == 0, result.stderr
    assert "clipped" in result.stderr
    assert "No consent recorded; add --consent" in result.stderr
    assert "is short" in result.stderr
    loud.write_bytes(b"not sound")
    refused = run("voice", "add", "other", loud, "--model", release)
    assert refused.exit_code == 1
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_doctor_says_what_would_run_and_what_is_missing(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())  # lines are as long as the terminal is wide
    assert "plan auto on cpu (cpu is the fastest device that torch finds here)" in shown
    assert "t3=int8 (by stack" in shown
    assert "kernels" in shown and "runs: " in shown
    assert "windows=8-12-14-17-21-25 (for streaming)" in shown
    assert "passed on cpu: tokens and mel of a stored sentence are right" in shown
    assert "float32" in shown
    assert "fledgling" in shown


@pytest.mark.slow
def test_the_command_itself_speaks_from_a_shell(release: Path, tmp_path: Path) -> None:
    """A process of its own, in a pipe: only sound on standard output, two lines on the other."""
    environ = {**os.environ, "NIGHTINGALE_HOME": str(tmp_path)}
    words = ["say", TEXT, "-o", "-", "--model", str(release), "--max-tokens", "9"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "nightingale", *words],
        env=environ,
        capture_output=True,
        check=True,
    )
    assert done.stderr.count(b"\n") == 2  # the plan, and that the text was cut off
    assert soundfile.info(io.BytesIO(done.stdout)).samplerate == 24_000


@pytest.mark.parametrize("wrong", [("-o", "x.doc"), ("-o", "-", "--format", "tape"),
                                   ("-o", "x.mp3", "--rate", "7")])  # fmt: skip
def test_a_wrong_format_is_told_before_any_work(run: Run, wrong: tuple[str, ...]) -> None:
    """There is no model here, and that is not what is complained about."""
    result = run("say", TEXT, *wrong)
    assert result.exit_code == 1
    assert "nightingale pull" not in result.stderr


@pytest.mark.slow
def test_mistakes_are_found_without_importing_torch(tmp_path: Path) -> None:
    mistakes = [
        ["say", TEXT, "-o", "a.wav", *wrong]
        for wrong in (
            ("-o", "nowhere/a.wav"),
            ("--voice", "nobody"),
            ("--language", "xx"),
            ("--device", "Abacus 1"),
            ("--min-p", "2"),
            ("--model", str(tmp_path)),
        )
    ]
    code = (
        "import sys; from nightingale.cli import app\n"
        f"for arguments in {mistakes!r}:\n"
        "    try: app(arguments)\n"
        "    except SystemExit as end: assert end.code == 1, arguments\n"
        "sys.exit('torch' in sys.modules)"
    )
    home = {"NIGHTINGALE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.count("\n") == len(mistakes), done.stderr


@pytest.mark.slow
def test_say_names_its_file_and_how_long_it_took(run: Run, release: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.wav"
    result = run("say", TEXT, "-o", file, "--model", release)
    seconds = soundfile.info(file).duration
    assert f"{file}: {seconds:.1f} s of audio in " in result.stderr
    assert "x real time)" in result.stderr
    quiet = run("say", TEXT, "-o", file, "--model", release, "--quiet")
    assert quiet.stderr == "The text was cut off: a part of it took too long.\n"
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-5 degrees", "-o", "a.wav"], ["-5 degrees"]),
        (["-o", "a.wav", "-5 degrees", "--quiet"], ["-5 degrees"]),
        (["-o", "a.wav", "-5"], ["-5"]),
        (["--quiet", "- and so on"], ["- and so on"]),
        (["Hi", "-o", "-5 degrees.wav"], ["Hi"]),
        (["Hi", "--output=a b.wav"], ["Hi"]),
        (["Hi", "-oa b.wav"], ["Hi"]),
        (["Hi", "--temperature", "-3"], ["Hi"]),
        (["-o", "a.wav", "--", "--output"], ["--output"]),
        (["-", "-o", "-"], ["-"]),
    ],
)
def test_a_text_may_begin_with_a_dash(arguments: list[str], words: list[str]) -> None:
    commands: Any = typer.main.get_command(app)
    context = commands.commands["say"].make_context("say", list(arguments))
    assert context.params["words"] == words


def test_a_misspelled_option_is_not_a_text(run: Run) -> None:
    assert "--output" in run("say", TEXT, "--ouput", "a.wav").stderr


@pytest.mark.slow
def test_say_reads_a_file_and_hints_at_it(run: Run, release: Path, tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_bytes(b"\xef\xbb\xbf" + TEXT.encode() + b"\r\n")
    to_pipe = ("-o", "-", "--model", release, "--format", "pcm")
    assert run("say", "-f", text, *to_pipe).stdout_bytes == run("say", TEXT, *to_pipe).stdout_bytes
    hinted = run("say", text, *to_pipe)
    assert hinted.exit_code == 0
    assert f"to read the file use --file {text}" in hinted.stderr
