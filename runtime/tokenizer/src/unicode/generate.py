"""Writes tables.bin beside this file from Python's unicodedata. Run: python3 generate.py

Layout, little-endian. Header: 10 pairs (offset u32, length u32), in bytes from the file's start:
  0 stage 1: u8 per 512 code points, a block of 1   5 compatibility keys, as 3
  1 stage 2: u16 per 16 code points, a block of 2   6 compatibility text offsets, as 4
  2 stage 3: u8 general category per code point     7 UTF-8 text of all decompositions
  3 canonical keys: u32 = code point | length<<24   8 combining classes: u32 = code point | class<<24
  4 canonical text offsets: u16 into 7              9 compositions: u32 triples (first, second, composed)
then the parts themselves.
Decompositions are complete (recursive, canonically ordered); Hangul syllables are left to code.
"""
import os
import struct
import unicodedata as u

CATEGORIES = "Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
HANGUL = range(0xAC00, 0xAC00 + 11172)
SURROGATES = range(0xD800, 0xE000)


def distinct(values, size):
    """Cuts values into blocks. Returns the number of each block, and the distinct blocks."""
    numbers = {}
    starts = range(0, len(values), size)
    return [numbers.setdefault(tuple(values[start:start + size]), len(numbers)) for start in starts], list(numbers)


def stages():
    categories = [CATEGORIES.index(u.category(chr(c))) for c in range(0x110000)]
    middle, leaves = distinct(categories, 16)
    top, blocks = distinct(middle, 32)
    stage2 = [number for block in blocks for number in block]
    return bytes(top), halves(stage2), b"".join(map(bytes, leaves))


def decompositions(form, other, text):
    keys, offsets = [], []
    for c in range(0x110000):
        if c in HANGUL or c in SURROGATES:
            continue
        whole = u.normalize(form, chr(c))
        if whole == chr(c) or (other and u.normalize(other, chr(c)) == whole):
            continue
        raw = whole.encode()
        keys.append(c | len(raw) << 24)
        at = text.find(raw)
        if at < 0:
            at = len(text)
            text += raw
        offsets.append(at)
    return keys, offsets


def compositions():
    out = []
    for c in range(0x110000):
        if c in HANGUL or c in SURROGATES:
            continue
        parts = u.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<") and u.normalize("NFC", chr(c)) == chr(c):
            out.append((int(parts[0], 16), int(parts[1], 16), c))
    return sorted(out)


def words(values):
    return struct.pack(f"<{len(values)}I", *values)


def halves(values):
    return struct.pack(f"<{len(values)}H", *values)


text = bytearray()
canonical = decompositions("NFD", None, text)
compatible = decompositions("NFKD", "NFD", text)
classes = [c | u.combining(chr(c)) << 24 for c in range(0x110000) if u.combining(chr(c))]
triples = [value for triple in compositions() for value in triple]
parts = [*stages(), words(canonical[0]), halves(canonical[1]), words(compatible[0]), halves(compatible[1]),
         bytes(text), words(classes), words(triples)]
offset, header = 8 * len(parts), []
for part in parts:
    header += [offset, len(part)]
    offset += len(part)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables.bin"), "wb") as out:
    out.write(words(header) + b"".join(parts))
print("Unicode", u.unidata_version, [len(part) for part in parts], offset)
