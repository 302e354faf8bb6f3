"""The texts that are most similar to a query: python embed.py MODEL QUERY TEXT…"""

import sys

import siskin

if len(sys.argv) < 4:
    sys.exit("usage: python embed.py MODEL QUERY TEXT…")
model, query, *texts = sys.argv[1:]
vectors = siskin.load(model).embed([query, *texts])
for index in (-(vectors[1:] @ vectors[0])).argsort():
    print(f"{vectors[0] @ vectors[index + 1]:.4f}  {texts[index]}")
