"""Reference values from PyTorch and Transformers for optimizers, schedules, loss scaling and weight averaging.

usage: make_optimizers.py OUT_DIR

OUT_DIR/NAME.json has a run of 100 steps of the small network below: the settings under the
trainer's names, the loss, the learning rate and a checksum of all parameters of each step, and the parameters after
the last step. OUT_DIR/schedules.json has the learning rates of schedules.

The network is computed in doubles, parameters and gradients are floats, so that mostly the optimizer is compared:

    x[r]   = token_embd[token(r)] + 0.5 · sin(0.4 r + 0.2 j)
    out[r] = down · tanh(up · x[r] + up_bias) + down_bias
    loss   = mean of (out[r, c] - cos(0.9 token(r) + 1.3 c))²

with token(r) = (3 r + 5 step + r²) mod 8. Element i of tensor t is initialized to 0.3 · sin(1.7 i + t).

Lion and AdamW with 8-bit state are implemented here: neither library has them.
"""
import json
import math
import sys
from pathlib import Path

import torch
from torch.optim.lr_scheduler import (
    ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, LinearLR, OneCycleLR)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import optimization

torch.set_num_threads(1)
STEPS, ROWS = 100, 12
TENSORS = [("token_embd.weight", 8, 15), ("blk.0.up.weight", 18, 15), ("blk.0.up.bias", 1, 18),
           ("blk.0.down.weight", 5, 18), ("blk.0.down.bias", 1, 5)]


def vector(name):
    return name.endswith("bias")


def initial_model():
    model = torch.nn.ParameterDict()
    for t, (name, rows, columns) in enumerate(TENSORS):
        numbers = torch.sin(1.7 * torch.arange(rows * columns, dtype=torch.double) + t) * 0.3
        shape = (columns,) if vector(name) else (rows, columns)
        model[name.replace(".", "_")] = torch.nn.Parameter(numbers.float().reshape(shape))
    return model


def loss_of(model, step):
    embd, up, up_bias, down, down_bias = (model[name.replace(".", "_")].double() for name, _, _ in TENSORS)
    r = torch.arange(ROWS)
    token = (3 * r + 5 * step + r * r) % 8
    j, c = torch.arange(15).double(), torch.arange(5).double()
    x = embd[token] + 0.5 * torch.sin(0.4 * r.double()[:, None] + 0.2 * j)
    out = torch.tanh(x @ up.T + up_bias) @ down.T + down_bias
    return ((out - torch.cos(0.9 * token.double()[:, None] + 1.3 * c)) ** 2).mean()


def checksum(model):
    """A checksum that depends on every parameter."""
    total = 0.0
    for t, parameter in enumerate(model.parameters()):
        numbers = parameter.detach().double().flatten()
        total += float((numbers * torch.cos(torch.arange(len(numbers)).double() + t)).sum())
    return total


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, betas, lr=1e-4, weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (ahead, behind), lr = group["betas"], group["lr"]
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.add_((average * ahead + p.grad * (1 - ahead)).sign(), alpha=-lr)
                average.mul_(behind).add_(p.grad, alpha=1 - behind)


def codes(signed):
    """The 8-bit numbers of "8-bit Optimizers via Block-wise Quantization": a decade has twice the parts of the last."""
    numbers = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** decade if signed else 2 ** (decade + 1)
        middles = [10.0 ** (decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts) for part in range(parts)]
        numbers += middles + ([-middle for middle in middles] if signed else [])
    assert len(numbers) == 256
    return torch.tensor(sorted(numbers), dtype=torch.double).float()


class Bytes:
    """Quantizes values to bytes and scales, in blocks of 256."""

    def __init__(self, count, signed):
        self.codes = codes(signed)
        self.between = (self.codes[1:] + self.codes[:-1]) * 0.5
        self.write(torch.zeros(count))

    def write(self, numbers):
        self.blocks = []
        for block in numbers.split(256):
            scale = block.abs().max()
            divided = block / (scale if scale > 0 else torch.tensor(1.0))
            self.blocks.append((torch.bucketize(divided, self.between), scale))

    def read(self):
        return torch.cat([self.codes[bytes] * scale for bytes, scale in self.blocks])


class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, parameters, betas, eps, min_8bit_size, lr=1e-3, weight_decay=1e-2):
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.min_8bit_size = min_8bit_size

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (one, two), lr = group["betas"], group["lr"]
            for p in group["params"]:
                state, small = self.state[p], p.numel() < self.min_8bit_size
                if not state:
                    state["count"] = 0
                    state["first"] = torch.zeros(p.numel()) if small else Bytes(p.numel(), True)
                    state["second"] = torch.zeros(p.numel()) if small else Bytes(p.numel(), False)
                state["count"] += 1
                grad = p.grad.flatten()
                first, second = (state[key] if small else state[key].read() for key in ("first", "second"))
                first = first.lerp(grad, 1 - one)
                second = (second * two).addcmul(grad, grad, value=1 - two)
                p.mul_(1 - lr * group["weight_decay"])
                divisor = second.sqrt() / math.sqrt(1 - two ** state["count"]) + group["eps"]
                step = lr / (1 - one ** state["count"])
                p.view(-1).addcdiv_(first, divisor, value=-step)
                for key, numbers in (("first", first), ("second", second)):
                    if small:
                        state[key] = numbers
                    else:
                        state[key].write(numbers)


def newton_schulz(grad, coefficients, steps, eps):
    """As in PyTorch's Muon, in f64 instead of bf16."""
    a, b, c = coefficients
    x = (grad.T if grad.shape[0] > grad.shape[1] else grad).double()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if grad.shape[0] > grad.shape[1] else x).float()


def groups_of(model, rate, decay, groups, which=lambda name: True):
    """PyTorch's parameter groups: vectors have no weight decay, and `groups` holds other exceptions."""
    lists = []
    for (name, _, _), parameter in zip(TENSORS, model.parameters()):
        if which(name):
            factors = [1.0, 0.0 if vector(name) else 1.0]
            for key, own in groups.items():
                if key in name:
                    factors = [a if b is None else b for a, b in zip(factors, own)]
            lists.append(dict(params=[parameter], lr=rate * factors[0], weight_decay=decay * factors[1]))
    return lists


def train(out, name, make, schedule, *, optimizer, schedule_options, rate, decay, max_grad_norm=None, scaling=None,
          ema=None, groups=None):
    model = initial_model()
    optimizers = make(lambda rate=rate, decay=decay, **more: groups_of(model, rate, decay, groups or {}, **more))
    schedulers = [schedule(optimizer) for optimizer in optimizers]
    scaler = scaling and torch.amp.GradScaler(
        "cpu", init_scale=scaling["init_scale"], growth_factor=scaling["growth_factor"],
        backoff_factor=scaling["backoff_factor"], growth_interval=scaling["growth_interval"])
    mean = ema and AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema["decay"]))
    if mean:
        mean.update_parameters(model)
    kept = dict(losses=[], learning_rates=[], checksums=[], loss_scales=[], ema_checksums=[])
    for step in range(STEPS):
        model.zero_grad(set_to_none=False)
        loss = loss_of(model, step)
        loss.backward()
        if scaler:
            scale = float(scaler.scale(torch.tensor(1.0)))
            kept["loss_scales"].append(scale)
            for p in model.parameters():
                p.grad.mul_(scale)
                p.grad[p.grad.abs() > 65504] = math.inf
            scaler.unscale_(optimizers[0])
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        kept["losses"].append(float(f"{loss.item():.12g}"))
        kept["learning_rates"].append(float(f"{schedulers[0].get_last_lr()[0]:.12g}"))
        for optimizer_ in optimizers:
            if scaler:
                scaler.step(optimizer_)
                scaler.update()
            else:
                optimizer_.step()
        for scheduler in schedulers:
            scheduler.step()
        kept["checksums"].append(float(f"{checksum(model):.10g}"))
        if mean:
            mean.update_parameters(model)
            kept["ema_checksums"].append(float(f"{checksum(mean.module):.10g}"))
    final = {name: [float(f"{x:.9g}") for x in parameter.detach().flatten().tolist()]
             for (name, _, _), parameter in zip(TENSORS, model.parameters())}
    settings = dict(optimizer=optimizer, schedule=dict(learning_rate=rate, **schedule_options),
                    max_grad_norm=max_grad_norm, grad_scaler=scaling, ema=ema)
    write(out / f"{name}.json", settings | {key: row for key, row in kept.items() if row} | dict(final=final))
    print(f"{name}: {kept['losses'][0]:.4f} to {kept['losses'][-1]:.4f}")


def write(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def one(kind, **options):
    plain = {} if kind in (Lion, AdamW8bit, optimization.Adafactor) else dict(foreach=False)
    return lambda groups: [kind(groups(), **options, **plain)]


def muon(**options):
    table = "token_embd"
    return lambda groups: [
        torch.optim.Muon(groups(which=lambda name: not vector(name) and table not in name), **options),
        torch.optim.AdamW(groups(rate=0.006, decay=0.02, which=lambda name: vector(name) or table in name),
                          foreach=False)]


def trainings(out):
    cosine = dict(name="cosine", warmup_steps=10), lambda o: optimization.get_cosine_schedule_with_warmup(o, 10, STEPS)
    constant = dict(name="constant"), lambda o: ConstantLR(o, factor=1.0)
    linear = dict(name="linear", min_lr_ratio=0.1), lambda o: LinearLR(o, 1.0, 0.1, STEPS)
    root = (dict(name="inverse_sqrt", warmup_steps=10),
            lambda o: optimization.get_inverse_sqrt_schedule(o, 10))
    stable = (dict(name="warmup_stable_decay", warmup_steps=10, decay_steps=30, min_lr_ratio=0.1, decay_type="linear"),
              lambda o: optimization.get_wsd_schedule(o, 10, 30, STEPS, decay_type="linear", min_lr_ratio=0.1))
    cycle = (dict(name="one_cycle"),
             lambda o: OneCycleLR(o, [g["lr"] for g in o.param_groups], STEPS + 1, pct_start=30 / (STEPS + 1),
                                  cycle_momentum=False))
    restarts = (dict(name="cosine_with_restarts", warmup_steps=10, num_cycles=3),
                lambda o: optimization.get_cosine_with_hard_restarts_schedule_with_warmup(o, 10, STEPS, 3))

    def case(name, make, schedule, rate, decay, optimizer, **more):
        train(out, name, make, schedule[1], optimizer=optimizer, schedule_options=schedule[0], rate=rate, decay=decay,
              **more)

    case("adamw", one(torch.optim.AdamW), cosine, 0.01, 0.1, dict(name="adamw", weight_decay=0.1), max_grad_norm=0.2,
         ema=dict(decay=0.9))
    case("adamw_groups", one(torch.optim.AdamW, betas=(0.8, 0.95), eps=1e-4), stable, 0.01, 0.2,
         dict(name="adamw", betas=[0.8, 0.95], eps=1e-4, weight_decay=0.2,
              groups=[dict(tensors="blk.*", lr_factor=0.5), dict(tensors="*.down.*", weight_decay_factor=2.0)]),
         groups={"blk.": (0.5, None), ".down.": (None, 2.0)})
    scaling = dict(init_scale=2.0 ** 24, growth_factor=4.0, backoff_factor=0.5, growth_interval=7)
    case("adamw_scaled", one(torch.optim.AdamW), linear, 0.01, 0.01, dict(name="adamw"), max_grad_norm=0.2,
         scaling=scaling)
    case("adam", one(torch.optim.Adam), linear, 0.01, 0.02, dict(name="adam", weight_decay=0.02))
    case("sgd", one(torch.optim.SGD), constant, 0.2, 0.01, dict(name="sgd", weight_decay=0.01))
    case("sgd_momentum", one(torch.optim.SGD, momentum=0.9, dampening=0.3), root, 0.05, 0.01,
         dict(name="sgd", momentum=0.9, dampening=0.3, weight_decay=0.01))
    case("sgd_nesterov", one(torch.optim.SGD, momentum=0.9, nesterov=True), cycle, 0.05, 0.01,
         dict(name="sgd", momentum=0.9, nesterov=True, weight_decay=0.01))
    case("lion", one(Lion, betas=(0.9, 0.99)), restarts, 0.003, 0.1, dict(name="lion", weight_decay=0.1))
    case("adafactor", one(torch.optim.Adafactor), root, 0.05, 0.1, dict(name="adafactor", weight_decay=0.1))
    case("adafactor_relative", one(optimization.Adafactor), constant, 1.0, 0.0,
         dict(name="adafactor", relative_step=True))
    eight_bit = dict(betas=(0.9, 0.999), eps=1e-8)
    case("adamw_8bit", one(AdamW8bit, **eight_bit, min_8bit_size=20), cosine, 0.01, 0.1,
         dict(name="adamw_8bit", weight_decay=0.1, min_8bit_size=20))
    others = dict(adamw_lr_factor=0.3, adamw=dict(weight_decay=0.02))
    case("muon_bfloat16", muon(), stable, 0.02, 0.1, dict(name="muon", **others))
    torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
    case("muon", muon(), stable, 0.02, 0.1, dict(name="muon", **others))
    case("muon_matched", muon(nesterov=False, adjust_lr_fn="match_rms_adamw"), stable, 0.02, 0.1,
         dict(name="muon", nesterov=False, adjust_lr_fn="match_rms_adamw", **others))


def schedules(out):
    kinds = optimization
    rows = [
        ("constant", {}, lambda o: kinds.get_constant_schedule(o)),
        ("constant", dict(warmup_steps=8), lambda o: kinds.get_constant_schedule_with_warmup(o, 8)),
        ("linear", {}, lambda o: kinds.get_linear_schedule_with_warmup(o, 0, 60)),
        ("linear", dict(warmup_steps=8), lambda o: kinds.get_linear_schedule_with_warmup(o, 8, 60)),
        ("linear", dict(min_lr_ratio=0.25), lambda o: LinearLR(o, 1.0, 0.25, 60)),
        ("cosine", dict(warmup_steps=8), lambda o: kinds.get_cosine_schedule_with_warmup(o, 8, 60)),
        ("cosine", dict(warmup_steps=8, min_lr_ratio=0.2),
         lambda o: kinds.get_cosine_with_min_lr_schedule_with_warmup(o, 8, 60, min_lr_rate=0.2)),
        ("cosine", dict(min_lr_ratio=0.1), lambda o: CosineAnnealingLR(o, 60, eta_min=0.0003)),
        ("cosine_with_restarts", dict(warmup_steps=8, num_cycles=3),
         lambda o: kinds.get_cosine_with_hard_restarts_schedule_with_warmup(o, 8, 60, 3)),
        ("cosine_with_restarts", dict(min_lr_ratio=0.1, num_cycles=4),
         lambda o: CosineAnnealingWarmRestarts(o, 15, eta_min=0.0003)),
        ("one_cycle", {}, lambda o: OneCycleLR(o, 0.003, 60)),
        ("one_cycle", dict(warmup_steps=15, initial_lr_ratio=0.1, min_lr_ratio=0.001),
         lambda o: OneCycleLR(o, 0.003, 60, pct_start=0.25, div_factor=10, final_div_factor=100)),
        ("inverse_sqrt", {}, lambda o: kinds.get_inverse_sqrt_schedule(o, 0)),
        ("inverse_sqrt", dict(warmup_steps=8), lambda o: kinds.get_inverse_sqrt_schedule(o, 8)),
        ("inverse_sqrt", dict(warmup_steps=8, timescale=20), lambda o: kinds.get_inverse_sqrt_schedule(o, 8, 20)),
        ("warmup_stable_decay", dict(warmup_steps=8, decay_steps=20), lambda o: kinds.get_wsd_schedule(o, 8, 20, 60)),
        ("warmup_stable_decay", dict(warmup_steps=8, decay_steps=20, min_lr_ratio=0.1, decay_type="linear"),
         lambda o: kinds.get_wsd_schedule(o, 8, 20, 60, decay_type="linear", min_lr_ratio=0.1)),
        ("warmup_stable_decay", dict(decay_steps=20, min_lr_ratio=0.1, decay_type="1-sqrt"),
         lambda o: kinds.get_wsd_schedule(o, 0, 20, 60, decay_type="1-sqrt", min_lr_ratio=0.1)),
    ]
    kept = []
    for name, settings, make in rows:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.003)
        scheduler = make(optimizer)
        rates = []
        for _ in range(60):
            rates.append(float(f"{scheduler.get_last_lr()[0]:.13g}"))
            optimizer.step()
            if len(rates) < 60:
                scheduler.step()
        kept.append(dict(schedule=dict(name=name, learning_rate=0.003, **settings), steps=60, learning_rates=rates))
    write(out / "schedules.json", kept)


folder = Path(sys.argv[1])
schedules(folder)
trainings(folder)
