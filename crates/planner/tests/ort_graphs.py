"""Writes the graphs that onnxruntime makes of models with its extended optimisation.

    python ort_graphs.py OUT MODEL.onnx...

OUT/NAME.onnx holds the graph alone: the weights go to a side file, which is deleted, since only their sizes count.
"""

import os
import sys

import onnxruntime as ort


def write(model: str, out: str) -> None:
    name = os.path.basename(model)
    side = name + ".weights"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = os.path.join(out, name)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", side)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if os.path.exists(os.path.join(out, side)):
        os.remove(os.path.join(out, side))


def main() -> None:
    out, models = sys.argv[1], sys.argv[2:]
    os.makedirs(out, exist_ok=True)
    for model in models:
        write(model, out)
        print(model, flush=True)


if __name__ == "__main__":
    main()
