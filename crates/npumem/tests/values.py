"""Compares what the simulator computed with NumPy. Usage: values.py FOLDER; a line per case in FOLDER/cases.txt:
name element kind op, and NAME.a.npy, NAME.b.npy, NAME.out.npy beside it."""

import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return bf16_to_f32((rounded >> 16).astype(np.uint16))


def load(path, element):
    array = np.load(path)
    return bf16_to_f32(array) if element == "bf16" and array.dtype == np.uint16 else array


def rounded(values, element):
    if element == "bf16":
        return to_bf16(values)
    return values.astype({"f32": np.float32, "f16": np.float16}.get(element, values.dtype))


def single(array):
    return array.astype(np.float32) if array.dtype.kind == "f" else array


ELEMENTWISE = {
    "tadd": np.add, "tsub": np.subtract, "tmul": np.multiply, "tmax": np.maximum, "tmin": np.minimum,
    "tand": np.bitwise_and, "tor": np.bitwise_or, "txor": np.bitwise_xor,
    "tdiv": lambda a, b: a / b, "trem": np.mod, "tfmod": np.fmod,
    "trowexpandsub": lambda a, b: a - b[:, :1], "trowexpandmul": lambda a, b: a * b[:, :1],
    "trowexpanddiv": lambda a, b: a / b[:, :1], "tcolexpandadd": lambda a, b: a + b[:1, :],
    "tcolexpandmul": lambda a, b: a * b[:1, :], "trowexpandmax": lambda a, b: np.maximum(a, b[:, :1]),
    "trowexpandexpdif": lambda a, b: np.exp(a - b[:, :1]),
    "tquant": lambda a, b: np.clip(np.rint(a * b[:, :1]), -128, 127).astype(np.int8),
}
UNARY = {
    "texp": np.exp, "tabs": np.abs, "tneg": np.negative, "trelu": lambda a: np.maximum(a, 0),
    "tsqrt": lambda a: np.sqrt(a), "trsqrt": lambda a: 1 / np.sqrt(a), "trecip": lambda a: 1 / a,
    "tlog": np.log, "tnot": np.invert, "ttrans": np.transpose, "tmov": lambda a: a,
    "trowsum": lambda a: a.sum(1, keepdims=True), "trowmax": lambda a: a.max(1, keepdims=True),
    "trowmin": lambda a: a.min(1, keepdims=True), "tcolsum": lambda a: a.sum(0, keepdims=True),
    "tcolmax": lambda a: a.max(0, keepdims=True), "tcolmin": lambda a: a.min(0, keepdims=True),
    "trowargmax": lambda a: a.argmax(1)[:, None], "tcolargmin": lambda a: a.argmin(0)[None, :],
    "trowexpand": lambda a: np.broadcast_to(a[:, :1], a.shape), "tcolexpand": lambda a: np.broadcast_to(a[:1], a.shape),
    "tadds": lambda a: a + a.dtype.type(3), "tmuls": lambda a: a * a.dtype.type(3),
    "tmaxs": lambda a: np.maximum(a, a.dtype.type(3)), "tpack": lambda a: a,
}
TOLERANCE = {"f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}

failed = 0
lines = (folder / "cases.txt").read_text().split("\n")
for line in filter(None, lines):
    name, element, kind, op = line.split()
    a = load(folder / f"{name}.a.npy", element)
    b = load(folder / f"{name}.b.npy", element)
    out = load(folder / f"{name}.out.npy", element)
    with np.errstate(all="ignore"):
        if kind == "binary":
            expected = ELEMENTWISE[op](single(a), single(b))
        elif kind == "unary":
            expected = UNARY[op](single(a))
        elif kind == "matmul":
            wide = np.float64 if a.dtype.kind == "f" else np.int64
            expected = a.astype(wide) @ b.astype(wide)
        elif kind == "softmax":
            shifted = a - a.max(1, keepdims=True)
            expected = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        elif kind == "convert":
            expected = np.clip(np.rint(single(a)), -128, 127).astype(np.int8)
        else:
            raise SystemExit(f"unknown kind {kind}")
    out = out.reshape(np.shape(expected))
    if kind in ("matmul", "softmax"):
        good = np.allclose(out, expected, rtol=2e-5, atol=2e-5)
    elif element in TOLERANCE:
        # Rounded once as the type does; functions that no two libraries round alike get a unit more.
        expected = rounded(expected, element).astype(np.float64)
        exact = op in ("tadd", "tsub", "tmul", "tdiv", "tmax", "tmin", "tabs", "tneg", "trelu", "tmov", "ttrans", "tsqrt",
                       "tquant")
        same = np.array_equal(out.astype(np.float64), expected, equal_nan=True)
        near = np.allclose(out.astype(np.float64), expected, rtol=TOLERANCE[element], atol=1e-6, equal_nan=True)
        good = same if exact else near
    else:
        good = np.array_equal(out, expected.astype(out.dtype))
    if not good:
        failed += 1
        worst = np.abs(out.astype(np.float64) - np.asarray(expected, dtype=np.float64))
        print(f"{line}: differs by up to {np.nanmax(worst)}: {out.ravel()[:4]} for {np.asarray(expected).ravel()[:4]}")
print(f"{len(lines) - 1} cases, {failed} differ")
sys.exit(failed > 0)
