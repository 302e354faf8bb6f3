"""Runs `siskin serve` and transcribes speech with OpenAI's Python package.

    python audio_client.py SISKIN SMOLLM2 MINILM WHISPER

All formats of the response have the text of the program's own `transcribe` command.
"""

import pathlib
import subprocess
import sys
import warnings
import wave

import openai
import siskin_server

SISKIN, _, _, WHISPER = sys.argv[1:5]
SPEECH = pathlib.Path(__file__).parents[3] / "tests/data/speech/english.wav"


# The package calls translations deprecated.
warnings.filterwarnings("ignore", category=DeprecationWarning)


def of_program(*options):
    """Returns what the program prints."""
    command = [SISKIN, "--quiet", "transcribe", WHISPER, SPEECH, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main():
    server = siskin_server.Server(SISKIN, WHISPER)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    file = ("speech.wav", SPEECH.read_bytes(), "audio/wav")
    with wave.open(str(SPEECH)) as sound:
        seconds = sound.getnframes() / sound.getframerate()

    def transcribe(**options):
        return client.audio.transcriptions.create(model="whisper", file=file, language="en", **options)

    try:
        text = of_program("--language", "en")
        assert transcribe().text.strip() == text, (transcribe().text, text)
        assert transcribe(response_format="text").strip() == text
        whole = transcribe(response_format="verbose_json", timestamp_granularities=["segment"])
        assert whole.text.strip() == text and whole.language and abs(whole.duration - seconds) < 0.01, whole
        assert all(segment.start <= segment.end for segment in whole.segments), whole
        subtitles = transcribe(response_format="srt")
        assert subtitles.count("-->") == len(whole.segments), subtitles
        assert transcribe(response_format="vtt").startswith("WEBVTT")
        translated = client.audio.translations.create(model="whisper", file=file)
        assert isinstance(translated.text, str)
        four_bytes = ("a.wav", b"RIFF", "audio/wav")
        error = siskin_server.raised(
            openai.BadRequestError,
            lambda: client.audio.transcriptions.create(model="whisper", file=four_bytes),
        )
        assert error.param == "file", error
        *parts, last = transcribe(stream=True)
        assert parts and all(part.type == "transcript.text.delta" for part in parts), parts
        assert last.type == "transcript.text.done" and last.text, last
        assert "".join(part.delta for part in parts) == last.text, (parts, last)
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve transcribes for the openai package")


if __name__ == "__main__":
    main()
