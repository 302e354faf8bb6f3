"""Synthetic speech, and its transcription by CTranslate2 with Whisper base.

usage: make_speech_goldens.py OUT_DIR MODEL_DIR

OUT_DIR/NAME.wav: a sentence spoken by espeak-ng, 16-bit at 16 kHz; OUT_DIR/speech.json: for each the language, the
probability of silence, and the ids of the likeliest tokens one after the other, without times and with them, and those
that a search with five beams finds, in f32.
MODEL_DIR is the folder that `cargo xtask model whisper` brings.

Needs espeak-ng, ctranslate2, numpy, tokenizers and transformers.
"""
import json
import subprocess
import sys
import wave
from pathlib import Path

import ctranslate2
import numpy as np
from tokenizers import Tokenizer
from transformers import WhisperFeatureExtractor

OUT, MODEL = Path(sys.argv[1]), Path(sys.argv[2])
RATE = 16000
SENTENCES = {
    "english": ("en-gb", "We walked along the beach. It was cold."),
    "german": ("de", "Heute ist das Wetter schön und wir gehen in den Park."),
}


def speak(voice, text):
    """What espeak-ng says, at 16 kHz by its spectrum."""
    spoken = subprocess.run(["espeak-ng", "-v", voice, "-s", "140", "--stdout", text], capture_output=True, check=True)
    samples = np.frombuffer(spoken.stdout[44:], "<i2").astype(np.float64)
    count = len(samples) * RATE // 22050
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    resampled = np.fft.irfft(spectrum, count) * count / len(samples)
    return np.clip(np.rint(resampled), -32768, 32767).astype("<i2")


OUT.mkdir(parents=True, exist_ok=True)
tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
extractor = WhisperFeatureExtractor(feature_size=80)
model = ctranslate2.models.Whisper(str(MODEL), device="cpu", compute_type="float32")
made = {}
for name, (voice, text) in SENTENCES.items():
    samples = speak(voice, text)
    with wave.open(str(OUT / f"{name}.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    given = extractor(samples.astype(np.float32) / 32768, sampling_rate=RATE, return_tensors="np").input_features
    features = ctranslate2.StorageView.from_array(np.ascontiguousarray(given.astype(np.float32)))
    language, share = model.detect_language(features)[0][0]
    entry = {"text": text, "language": language.strip("<|>"), "share": share}
    for key, last in (("plain", [tokenizer.token_to_id("<|notimestamps|>")]), ("times", [])):
        ids = [tokenizer.token_to_id(token) for token in ("<|startoftranscript|>", language, "<|transcribe|>")]
        written = model.generate(features, [ids + last], beam_size=1, return_no_speech_prob=True)[0]
        beams = model.generate(features, [ids + last], beam_size=5)[0]
        entry |= {key: written.sequences_ids[0], f"{key}_beams": beams.sequences_ids[0],
                  "silence": written.no_speech_prob}
    made[name] = entry
    print(name, entry, tokenizer.decode(entry["plain"]))
(OUT / "speech.json").write_text(json.dumps(made, indent=1) + "\n")
