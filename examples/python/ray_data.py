"""Embeddings of a dataset by two actors, which share the mapped model: python ray_data.py MODEL"""

import sys

import ray
import siskin.ray

ray.init(num_cpus=2, include_dashboard=False)
texts = [f"text number {number} about birds" for number in range(100)]
dataset = ray.data.from_items([{"text": text} for text in texts]).map_batches(
    siskin.ray.Embedder, fn_constructor_kwargs={"model": sys.argv[1], "threads": 1}, batch_size=25, concurrency=2
)
rows = dataset.take_all()
assert sorted(row["text"] for row in rows) == sorted(texts)
print(len(rows), "embeddings of", len(rows[0]["embedding"]), "dimensions")
