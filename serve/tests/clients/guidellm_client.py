"""Runs `siskin serve`, loads it with GuideLLM and with `siskin bench-serve`, and compares what both and the server measure.

    python guidellm_client.py SISKIN SMOLLM2
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from siskin_server import Server, json_lines

SISKIN, DECODER = sys.argv[1:3]
REQUESTS, CLIENTS, PROMPT, OUTPUT = 24, 2, 64, 32
HISTOGRAMS = {"first": "siskin_time_to_first_token_seconds", "gap": "siskin_inter_token_latency_seconds"}

# What GuideLLM uses of PyTorch, which has GBs: an iteration over the prompts.
TORCH = {
    "__init__.py": """
import torch.utils.data

class Generator:
    def manual_seed(self, seed):
        return self
""",
    "utils/__init__.py": "",
    "utils/data/__init__.py": """
from torch.utils.data.dataset import IterableDataset

def get_worker_info():
    return None
""",
    "utils/data/dataset.py": """
import typing

Item = typing.TypeVar("Item")

class IterableDataset(typing.Generic[Item]):
    pass
""",
    "utils/data/dataloader.py": """
import typing

Item = typing.TypeVar("Item")

class DataLoader(typing.Generic[Item]):
    def __init__(self, dataset, batch_size, shuffle, collate_fn, **options):
        assert batch_size == 1 and not shuffle
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        return (self.collate_fn([item]) for item in self.dataset)
""",
}


class Measured:
    """What the server measured in the meantime."""

    def __init__(self, server):
        self.server, self.before = server, self.read(server)

    @staticmethod
    def read(server):
        values = {
            "prompt": server.metric("siskin_prompt_tokens_total"),
            "output": server.metric("siskin_generation_tokens_total"),
            "requests": server.metric("siskin_request_success_total", finished_reason="length"),
            "all": server.metric("siskin_request_success_total"),
        }
        for key, name in HISTOGRAMS.items():
            values |= {(key, part): server.metric(f"{name}_{part}") for part in ["sum", "count"]}
        return values

    def get(self):
        return {key: value - self.before[key] for key, value in self.read(self.server).items()}


def mean_ms(measured, key):
    return measured[key, "sum"] / measured[key, "count"] * 1000


def run_guidellm(server, folder):
    """Returns the metrics of a GuideLLM benchmark and its successful requests."""
    for path, text in TORCH.items():
        path = folder / "modules/torch" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tokenizer = folder / "tokenizer"
    json_lines(SISKIN, "export", DECODER, "-o", str(tokenizer), "--dtype", "f16", "--json")
    (tokenizer / "model.safetensors").unlink()
    report = folder / "report.json"
    environment = {
        "PYTHONPATH": str(folder / "modules"),
        "USE_TORCH": "0",
        "HF_HOME": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "guidellm", "run", "--disable-console", "--seed", "kind=static,value=1"]
    command += ["--backend", f"kind=openai_http,target={server.url},model=smollm2"]
    command += ["--tokenizer", f"kind=hf_auto,model={tokenizer}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}"]
    command += ["--profile", f"kind=concurrent,streams={CLIENTS}"]
    command += ["--constraint", f"kind=max_requests,count={REQUESTS}", "--output", f"kind=json,path={report}"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    failed = benchmark["requests"]["errored"]
    assert totals["successful"] == REQUESTS and not totals["errored"], (totals, failed and failed[0]["info"]["error"])
    return benchmark["metrics"], benchmark["requests"]["successful"]


def run_bench_serve(server):
    limits = ["--max-prompt", str(PROMPT), "--max-output", str(OUTPUT)]
    load = ["--requests", str(REQUESTS), "--concurrency", str(CLIENTS)]
    (report,) = json_lines(SISKIN, "bench-serve", server.url, *limits, *load, "--json")
    (measured,) = report["servers"][0]["rounds"]
    assert measured["succeeded"] == REQUESTS and measured["failed"] == 0, measured
    return measured


def compare(name, value, other, factor=1.5, slack_ms=5):
    """Fails if two times in ms differ by more than the factor, but for some ms."""
    assert value <= other * factor + slack_ms and other <= value * factor + slack_ms, (name, value, other)


def check_tokens(server, folder):
    meanwhile = Measured(server)
    metrics, requests = run_guidellm(server, folder)
    measured = meanwhile.get()
    # GuideLLM may have sent a request before, to see whether the server answers.
    assert measured["all"] - REQUESTS <= 1, measured
    assert measured["requests"] == REQUESTS, measured
    output = sum(request["output_metrics"]["text_tokens"] for request in requests)
    prompt = sum(request["input_metrics"]["text_tokens"] for request in requests)
    assert output == measured["output"] == REQUESTS * OUTPUT, (output, measured)
    assert prompt == measured["prompt"] > REQUESTS * PROMPT, (prompt, measured)
    print(f"GuideLLM and the server count {REQUESTS} requests, {prompt:.0f} tokens of prompts and {output:.0f} generated")
    means = {key: metrics[name]["successful"]["mean"] for key, name in [
        ("first", "time_to_first_token_ms"), ("gap", "inter_token_latency_ms")
    ]}
    for key, value in means.items():
        compare(f"GuideLLM's mean and the server's: {key}", value, mean_ms(measured, key))
    print(
        f"GuideLLM and the server measure {means['first']:.1f} and {mean_ms(measured, 'first'):.1f} ms to the first "
        f"token, {means['gap']:.2f} and {mean_ms(measured, 'gap'):.2f} ms between tokens (means)"
    )
    return metrics


def check_times(server, metrics):
    meanwhile = Measured(server)
    bench = run_bench_serve(server)
    measured = meanwhile.get()
    assert measured["requests"] == REQUESTS and measured["output"] == bench["generated_tokens"], (measured, bench)
    assert measured["prompt"] == bench["prompt_tokens"], (measured, bench)
    pairs = [
        ("first token", "time_to_first_token_ms", bench["first_token_ms"]["p50"]),
        ("per token", "inter_token_latency_ms", bench["per_token_ms"]["p50"]),
    ]
    for name, key, value in pairs:
        other = metrics[key]["successful"]["median"]
        # The prompts differ, and so do the runs.
        compare(f"bench-serve's median and GuideLLM's: {name}", value, other, factor=3)
        print(f"bench-serve and GuideLLM measure {value:.1f} and {other:.1f} ms (medians): {name}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = Server(SISKIN, DECODER)
        try:
            metrics = check_tokens(server, pathlib.Path(folder))
            check_times(server, metrics)
            server.stop()
        finally:
            server.process.kill()
    print("GuideLLM, siskin bench-serve and the metrics of siskin serve agree")


main()
