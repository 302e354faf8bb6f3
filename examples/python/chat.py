"""A conversation in the terminal: python chat.py [MODEL]"""

import sys

import siskin

model = siskin.load(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
session = model.session(system="Be brief.")
for line in sys.stdin:
    for piece in session.ask(line.strip(), stream=True):
        print(piece, end="", flush=True)
    print()
