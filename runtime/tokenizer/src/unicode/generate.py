"""Writes tables.bin beside this file from Python's unicodedata. Run: python3 generate.py

Layout, little-endian. Header: 10 pairs (offset u32, length u32), in bytes from the file's start:
  0 stage 1: u8 per 512 code points, a block of 1   5 compatibility runs, as 3
  1 stage 2: u16 per 16 code points, a block of 2   6 compatibility texts, as 4
  2 stage 3: u8 general category per code point     7 UTF-8 text of all decompositions
  3 canonical runs: u32 pairs (first code point,    8 combining classes: u32 = code point | class<<24
    number in 4), ended by one behind the last      9 compositions: u16 numbers in 4, sorted by text
  4 canonical texts: u16 = offset in 7 | characters<<14; 0 characters: the byte at the offset is the length in bytes
then the parts themselves.
Decompositions are complete (recursive, canonically ordered); Hangul syllables are left to code. A composition is found by
the text that its two characters decompose to.
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


def decompositions(form, other):
    """Returns the characters that decompose, and what to."""
    found = {}
    for c in range(0x110000):
        if c in HANGUL or c in SURROGATES:
            continue
        whole = u.normalize(form, chr(c))
        if whole != chr(c) and not (other and u.normalize(other, chr(c)) == whole):
            found[c] = whole
    return found


def runs(points):
    """Returns the first code point and the number of each run of successive ones, and one pair behind the last."""
    out = []
    for number, point in enumerate(points):
        if number == 0 or points[number - 1] != point - 1:
            out += [point, number]
    return out + [0x110000, len(points)]


def places(wholes, text):
    """Appends what is missing to the text. Returns where each is."""
    out = []
    for whole in wholes:
        raw = whole.encode()
        characters = len(whole) if len(whole) <= 3 else 0
        if characters == 0:
            raw = bytes([len(raw)]) + raw
        at = text.find(raw)
        if at < 0:
            at = len(text)
            text += raw
        assert at < 1 << 14
        out.append(at | characters << 14)
    return out


def compositions(canonical):
    """Returns the numbers of the decompositions that are undone by composition, sorted by text."""
    out = []
    for number, (c, whole) in enumerate(canonical.items()):
        pair = u.decomposition(chr(c)).split()
        if len(pair) == 2 and u.normalize("NFC", chr(c)) == chr(c):
            first, second = (chr(int(part, 16)) for part in pair)
            assert whole == canonical.get(ord(first), first) + second and u.category(second).startswith("M")
            out.append((whole.encode(), number))
    assert len({raw for raw, _ in out}) == len(out)
    return [number for _, number in sorted(out)]


def words(values):
    return struct.pack(f"<{len(values)}I", *values)


def halves(values):
    return struct.pack(f"<{len(values)}H", *values)


text = bytearray()
canonical = decompositions("NFD", None)
compatible = decompositions("NFKD", "NFD")
# The longest first: many others are parts of them.
for whole in sorted([*canonical.values(), *compatible.values()], key=lambda whole: -len(whole)):
    places([whole], text)
classes = [c | u.combining(chr(c)) << 24 for c in range(0x110000) if u.combining(chr(c))]
parts = [*stages(), words(runs(list(canonical))), halves(places(canonical.values(), text)),
         words(runs(list(compatible))), halves(places(compatible.values(), text)), bytes(text), words(classes),
         halves(compositions(canonical))]
offset, header = 8 * len(parts), []
for part in parts:
    header += [offset, len(part)]
    offset += len(part)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables.bin"), "wb") as out:
    out.write(words(header) + b"".join(parts))
print("Unicode", u.unidata_version, [len(part) for part in parts], offset)
