"""Makes short audio files of several codecs, and what FFmpeg decodes from each: a WAV file of the channels' mean.

pip install av==18.1.0 numpy==2.4.6
usage: python tests/golden-scripts/make_media.py tests/data/media
"""
import sys
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

# The file, codec, container, sample rate and channels. Opus files are for the test of its error.
FILES = [
    ("mp3.mp3", "libmp3lame", "mp3", 22050, 1),
    ("stereo.mp3", "libmp3lame", "mp3", 44100, 2),
    ("aac.m4a", "aac", "ipod", 16000, 1),
    ("aac.aac", "aac", "adts", 16000, 1),
    ("flac.flac", "flac", "flac", 16000, 2),
    ("flac.ogg", "flac", "ogg", 16000, 1),
    ("vorbis.ogg", "vorbis", "ogg", 44100, 2),
    ("vorbis.mka", "vorbis", "matroska", 44100, 2),
    ("opus.ogg", "libopus", "ogg", 16000, 1),
    ("opus.webm", "libopus", "webm", 16000, 1),
]
SECONDS = 0.3


def signal(rate, channels):
    """A rising tone with a little noise; a second channel has a lower one."""
    time = np.arange(round(SECONDS * rate)) / rate
    noise = np.random.default_rng(7).normal(0, 0.01, (channels, len(time)))
    tones = [0.5 * np.sin(2 * np.pi * (start * time + 2000 * time**2)) for start in (300, 200)[:channels]]
    return (np.stack(tones) + noise).astype(np.float32)


def encode(path, codec, container, rate, channels):
    with av.open(str(path), "w", format=container) as output:
        options = {"strict": "experimental"}
        stream = output.add_stream(codec, rate=rate, layout="mono" if channels == 1 else "stereo", options=options)
        stream.bit_rate = 32000 * channels
        frame = av.AudioFrame.from_ndarray(signal(rate, channels), format="fltp", layout=stream.layout.name)
        frame.sample_rate = rate
        fifo = av.AudioFifo()
        resampler = av.AudioResampler(format=stream.format.name, layout=stream.layout.name, rate=rate)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            fifo.write(piece)
        time = 0
        while piece := fifo.read(stream.codec_context.frame_size or 1024, partial=True):
            piece.pts, piece.time_base, time = time, Fraction(1, rate), time + piece.samples
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))


def decode(path):
    with av.open(str(path)) as source:
        stream = source.streams.audio[0]
        resampler = av.AudioResampler(format="fltp", layout=stream.layout.name, rate=stream.rate)
        frames = [piece for frame in source.decode(stream) for piece in resampler.resample(frame)]
        return stream.rate, np.concatenate([frame.to_ndarray() for frame in frames], axis=1).mean(axis=0)


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, codec, container, rate, channels in FILES:
    encode(folder / name, codec, container, rate, channels)
    if codec == "libopus":
        continue
    rate, samples = decode(folder / name)
    print(name, rate, len(samples), (folder / name).stat().st_size)
    with wave.open(str(folder / f"{name}.wav"), "wb") as output:
        output.setparams((1, 2, rate, 0, "NONE", ""))
        output.writeframes(np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2").tobytes())
