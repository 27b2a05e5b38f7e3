"""What schedules of `tile` leave behind, beside NumPy: `tile_values.py FOLDER`.

`cases.txt` has a case a line, `NAME SPEC`; `NAME.OPERAND.npy` are the operands. The spec is read here once more, by its
documentation, and every operator is computed in double precision.
"""
import itertools
import math
import pathlib
import sys

import numpy as np


def fields(spec):
    family, *pairs = spec.split()
    return family, dict(pair.split("=") for pair in pairs)


def dims(text, rank=None):
    numbers = [int(part) for part in text.replace(",", "x").split("x")]
    return numbers * rank if rank and len(numbers) == 1 else numbers


def applied(words, x):
    for word in [word for word in words.split(",") if word and word != "none"]:
        x = {
            "relu": lambda x: np.maximum(x, 0),
            "neg": lambda x: -x,
            "abs": np.abs,
            "exp": np.exp,
            "tanh": np.tanh,
            "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
            "silu": lambda x: x / (1 + np.exp(-x)),
            "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
            "cast": lambda x: x,
        }[word](x)
    return x


def windows(keys, rank, size, kernel):
    stride, dilation = dims(keys.get("stride", "1"), rank), dims(keys.get("dilation", "1"), rank)
    pad = dims(keys.get("pad", "0"), rank)
    end = dims(keys["pad-end"], rank) if "pad-end" in keys else pad
    out = []
    for at in range(rank):
        room = size[at] + pad[at] + end[at] - dilation[at] * (kernel[at] - 1) - 1
        out.append(room // stride[at] + 1)
    return stride, dilation, pad, end, out


def slices(x, offset, stride, dilation, out):
    """The elements that one position of the kernel meets, of a padded input whose last axes are the window's."""
    index = [slice(None)] * (x.ndim - len(out))
    for r, s, d, o in zip(offset, stride, dilation, out):
        index.append(slice(r * d, r * d + s * (o - 1) + 1, s))
    return x[tuple(index)]


def conv(keys, x, w, depthwise):
    size = dims(keys["size"])
    rank = len(size)
    kernel = dims(keys["kernel"], rank)
    n, c = int(keys.get("n", 1)), int(keys["c"])
    k = int(keys.get("k", c))
    g = int(keys.get("groups", c if depthwise else 1))
    last = keys.get("layout") == "nhwc"
    if last:
        x = np.moveaxis(x.reshape(n, *size, g, c // g), [-2, -1], [1, 2])
        w = np.moveaxis(w.reshape(g, k // g, *kernel, c // g), -1, 2)
    x = x.reshape(n, g, c // g, *size)
    w = w.reshape(g, k // g, c // g, *kernel)
    stride, dilation, pad, end, out = windows(keys, rank, size, kernel)
    positions = list(itertools.product(*map(range, kernel)))
    if keys.get("transposed") == "true":
        extra = dims(keys.get("output-pad", "0"), rank)
        full = [(size[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(rank)]
        y = np.zeros((n, g, k // g, *full))
        for at in positions:
            place = slices(y, at, stride, dilation, size)
            place += np.einsum("ngc...,gkc->ngk...", x, w[(slice(None),) * 3 + at])
        y = y[(slice(None),) * 3 + tuple(slice(pad[i], full[i] - end[i]) for i in range(rank))]
    else:
        x = np.pad(x, [(0, 0)] * 3 + [(pad[i], end[i]) for i in range(rank)])
        y = sum(
            np.einsum("ngc...,gkc->ngk...", slices(x, at, stride, dilation, out), w[(slice(None),) * 3 + at])
            for at in positions
        )
    return y


def late(keys, y, operands, channels):
    """Bias along the channels, residual, functions."""
    if "bias" in operands:
        y = y + operands["bias"].reshape(channels)
    if "residual" in operands:
        y = y + operands["residual"].reshape(y.shape)
    return applied(keys.get("act", ""), y)


def expected(spec, operands):
    family, keys = fields(spec)
    if family in ("conv", "depthwise"):
        y = conv(keys, operands["in"], operands["weight"], family == "depthwise")
        channels = (1, *y.shape[1:3], *[1] * (y.ndim - 3))
        if keys.get("layout") != "nhwc":
            return late(keys, y, operands, channels)
        rest = {name: value for name, value in operands.items() if name == "bias"}
        y = late({}, y, rest, channels)
        y = np.moveaxis(y, [1, 2], [-2, -1])
        return late(keys, y, {name: value for name, value in operands.items() if name == "residual"}, ())
    if family == "pool":
        size = dims(keys["size"])
        rank, c, n = len(size), int(keys["c"]), int(keys.get("n", 1))
        kernel = size if keys.get("global") == "true" else dims(keys["kernel"], rank)
        last = keys.get("layout") == "nhwc"
        x = operands["in"].reshape((n, *size, c) if last else (n, c, *size))
        x = np.moveaxis(x, -1, 1) if last else x
        stride, dilation, pad, end, out = windows(keys, rank, size, kernel)
        ends = [(0, 0)] * 2 + [(pad[i], end[i]) for i in range(rank)]
        positions = list(itertools.product(*map(range, kernel)))
        if keys.get("op", "max") == "max":
            x = np.pad(x, ends, constant_values=-np.inf)
            y = np.max([slices(x, at, stride, dilation, out) for at in positions], axis=0)
        else:
            # Padding is not counted.
            there = np.pad(np.ones_like(x), ends)
            x = np.pad(x, ends)
            total = sum(slices(x, at, stride, dilation, out) for at in positions)
            y = total / sum(slices(there, at, stride, dilation, out) for at in positions)
        return np.moveaxis(y, 1, -1) if last else y
    if family == "matmul":
        batch, m, n, k = (int(keys.get(name, 1)) for name in ("batch", "m", "n", "k"))
        turned, shared = keys.get("transpose", ""), keys.get("shared", "")
        a = operands["a"].reshape(1 if shared == "a" else batch, *((k, m) if "a" in turned else (m, k)))
        b = operands["b"].reshape(1 if shared == "b" else batch, *((n, k) if "b" in turned else (k, n)))
        a = np.swapaxes(a, 1, 2) if turned in ("a", "ab") else a
        b = np.swapaxes(b, 1, 2) if turned in ("b", "ab") else b
        return late(keys, a @ b, operands, (1, 1, n))
    shape = dims(keys["shape"])
    if family == "elementwise":
        own = lambda name: dims(keys.get(f"{name}-shape", keys["shape"]))
        inputs = [operands[name].reshape(own(name)) for name in "abcd" if name in operands]
        y, rest = inputs[0], inputs[1:]
        two = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum}
        for word in keys.get("op", "").split(","):
            if word in two:
                y = two[word](y, rest.pop(0))
            else:
                y = applied(word, y)
        for more in rest:
            y = y + more
        return np.broadcast_to(y, shape)
    if family == "transpose":
        order = dims(keys["perm"]) if "perm" in keys else None
        return np.transpose(operands["in"].reshape(shape), order)
    x = operands["a"].reshape(shape)
    if family == "reduce":
        axes = tuple(dims(keys["axes"])) if "axes" in keys else (-1,)
        return {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "prod": np.prod}[keys.get("op", "sum")](x, axis=axes)
    if family == "softmax":
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    if "residual" in operands:
        x = x + operands["residual"].reshape(shape)
    if family == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * operands["weight"]
    return y + operands["bias"] if family == "layernorm" else y


def real(list, spec):
    """NumPy has no bf16: the upper halves of single precision."""
    if "bf16" in spec and list.dtype.itemsize == 2:
        return (list.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return list.astype(np.float64)


def main(folder):
    wrong = 0
    for line in (folder / "cases.txt").read_text().splitlines():
        name, spec = line.split(" ", 1)
        operands = {path.name.split(".")[-2]: np.load(path) for path in folder.glob(f"{name}.*.npy")}
        result = operands.pop("c" if "c" in operands and not spec.startswith("elementwise") else "out")
        exact = {operand: real(value, spec) for operand, value in operands.items()}
        try:
            y = np.asarray(expected(spec, exact)).reshape(-1)
        except ValueError as problem:
            wrong += 1
            print(f"{name} {spec}: {problem}")
            continue
        found = real(result, spec).reshape(-1)
        # Two roundings of the narrowest type on the way.
        narrow = min((value.dtype.itemsize for value in [result, *operands.values()]), default=4)
        least = 2e-2 if "bf16" in spec else {1: 0.5, 2: 4e-3, 4: 1e-5}[narrow]
        worst = np.max(np.abs(found - y) / np.maximum(np.abs(y), 1)) if y.size == found.size else np.inf
        if not worst <= least:
            wrong += 1
            print(f"{name} {spec}: {y.size} values, {found.size} found, off by {worst}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(pathlib.Path(sys.argv[1])) else 0)
