"""Writes tests/data/audio: Transformers' features of synthetic sounds, and WAV files with their samples.

Run with a Python that has torch, transformers, safetensors and soundfile. `tests/tests/audio.rs` computes the same
sounds; `--all FILE` writes every frame into another file, for a comparison by hand.
"""

import argparse
import pathlib
import shutil

import numpy
import soundfile
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
FOLDER = DATA / "audio"
RATE = 16000


def noise(length, seed):
    """Numbers from -1 to 1, exact in 32 bits."""
    numbers, state = [], seed
    for _ in range(length):
        state = (state * 1664525 + 1013904223) % 2**32
        numbers.append((state >> 8) / 2**23 - 1)
    return numpy.array(numbers)


def chirp(length, seed):
    """A sweep from 100 Hz, rising by 260 Hz per second, plus noise."""
    time = numpy.arange(length) / RATE
    sweep = 0.5 * numpy.sin(2 * numpy.pi * (100 * time + 130 * time * time))
    return (sweep + 0.1 * noise(length, seed)).astype(numpy.float32)


def bursts(length, seed):
    """Noise that is switched on and off every quarter of a second."""
    heard = numpy.arange(length) // 4000 % 2 == 0
    return (0.3 * noise(length, seed) * heard).astype(numpy.float32)


def silence(length, seed):
    return numpy.zeros(length, numpy.float32)


# Name, sound, samples, seed, the sample to start from, bands, seconds (0: as long as the sound).
CASES = [
    ("chirp-80", chirp, 480000, 1, 0, 80, 30),
    ("chirp-128", chirp, 480000, 2, 0, 128, 30),
    ("chirp-20", chirp, 470001, 3, 0, 20, 30),
    ("silence", silence, 16000, 0, 0, 80, 30),
    ("short", chirp, 1600, 4, 0, 80, 30),
    ("one-sample", chirp, 1, 5, 0, 80, 30),
    ("long", chirp, 640000, 6, 0, 80, 30),
    ("long-later", chirp, 640000, 6, 200001, 128, 30),
    ("bursts", bursts, 400000, 7, 777, 80, 30),
    ("five-seconds", bursts, 90000, 8, 0, 20, 5),
    ("whole", chirp, 560077, 9, 0, 128, 0),
]

FORMATS = [
    # Name, container, coding, rate, moments, channels.
    ("pcm8-mono", "WAV", "PCM_U8", 8000, 33, 1),
    ("pcm16-stereo", "WAV", "PCM_16", 44100, 32, 2),
    ("pcm24-mono", "WAV", "PCM_24", 48000, 31, 1),
    ("pcm32-stereo", "WAV", "PCM_32", 16000, 30, 2),
    ("float32-mono", "WAV", "FLOAT", 22050, 29, 1),
    ("float64-stereo", "WAV", "DOUBLE", 96000, 28, 2),
    ("extensible-pcm24-three", "WAVEX", "PCM_24", 11025, 27, 3),
    ("extensible-pcm16-six", "WAVEX", "PCM_16", 48000, 27, 6),
    ("extensible-float32-mono", "WAVEX", "FLOAT", 192000, 26, 1),
]
SEEDS = ["pcm8-mono", "pcm16-stereo", "float64-stereo", "extensible-pcm24-three", "extensible-float32-mono"]


def features(sound, samples, seed, start, bands, seconds, every=False):
    extractor = WhisperFeatureExtractor(feature_size=bands, chunk_length=seconds or 30)
    options = {} if seconds else {"truncation": False, "padding": "longest"}
    wave = sound(samples, seed)[start:]
    result = extractor(wave, sampling_rate=RATE, return_tensors="np", **options)["input_features"][0].T
    frames = numpy.arange(len(result))
    if not every:
        frames = frames[(frames < 3) | (frames % 173 == 0) | (frames >= len(result) - 2)]
    return numpy.ascontiguousarray(result[frames]), frames.astype(numpy.int64), len(result)


def mel(path, every):
    tensors = {}
    for name, *case in CASES:
        values, frames, count = features(*case, every)
        tensors[f"{name}.values"] = values.astype(numpy.float32)
        tensors[f"{name}.frames"] = frames
        tensors[f"{name}.count"] = numpy.array([count], numpy.int64)
    save_file(tensors, path)


def wav():
    tensors = {}
    for seed, (name, container, coding, rate, moments, channels) in enumerate(FORMATS):
        path = FOLDER / f"{name}.wav"
        samples = 0.9 * noise(moments * channels, seed + 100).reshape(moments, channels)
        soundfile.write(path, samples, rate, coding, format=container)
        read, _ = soundfile.read(path, dtype="float64", always_2d=True)
        tensors[name] = read.mean(axis=1)
    save_file(tensors, FOLDER / "wav.safetensors")
    for name in SEEDS:
        shutil.copy(FOLDER / f"{name}.wav", DATA / "fuzz" / "wav" / f"{name}.wav")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.all:
        mel(arguments.all, True)
        return
    mel(FOLDER / "mel.safetensors", False)
    wav()


main()
