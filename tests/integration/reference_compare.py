#!/usr/bin/env python3
"""Compares a container's forward pass, as `shoal eval` dumps it, with the PyTorch reference.

    reference_compare.py fixtures SHOAL CONTAINER DATA_DIR
        logits, hidden states, routing and greedy tokens of the stored fixtures (float64 reference, made before Shoal)
    reference_compare.py dequantized SHOAL CONTAINER DATA_DIR
        the same bounds against the reference run on `shoal inspect --dequantize` of the container
    reference_compare.py random SHOAL all|VARIANT[,VARIANT...] SEED[,SEED...]
        random checkpoints, lossless, and with seed 0 also in 3 bits against the reference on `inspect --dequantize`; bounds
        are the larger of those above and twice (hidden states of coded experts: three times) the error that float32 makes in the reference

Every failure is printed with the numbers; the exit status is 1 if there was one.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "reference"))

LOGIT_BOUND = 3.6e-6  # max |difference| / max |reference|, in exact arithmetic
FAST_LOGIT_BOUND = {"tcq3": 2e-4, "rvq3": 1e-3}  # in fast arithmetic
HIDDEN_BOUND = 1.1e-5
CODECS = ("tcq3", "rvq3")

failures = []


def check(what, value, bound):
    ok = value <= bound  # false for NaN
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {value:.3e} (bound {bound:.3e})")
    if not ok:
        failures.append(what)


def check_equal(what, actual, expected):
    ok = np.array_equal(np.asarray(actual), np.asarray(expected))
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {'equal' if ok else 'different'}")
    if not ok:
        failures.append(what)


def relative(actual, expected):
    return float(np.max(np.abs(actual.astype(np.float64) - expected)) / np.max(np.abs(expected)))


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(args)} failed with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout


def dump(shoal, container, ids, directory, *flags):
    """Runs ids through the container; returns {name: array} of everything dumped."""
    logits = os.path.join(directory, "logits.npy")
    hidden = os.path.join(directory, "hidden")
    run(shoal, "eval", container, "--ids", ",".join(map(str, ids)), "--dump-logits", logits, "--dump-hidden", hidden, "--json", *flags)
    arrays = {"logits": np.load(logits)}
    for name in os.listdir(hidden):
        arrays[name.removesuffix(".npy")] = np.load(os.path.join(hidden, name))
    return arrays


def greedy(shoal, container, ids, count):
    out = run(shoal, "run", container, "--ids", ",".join(map(str, ids)), "--max-tokens", str(count), "--temperature", "0",
              "--ignore-eos", "--json")
    return json.loads(out)["ids"]


# Twice what float32 makes in the reference. Coded experts round each unit's activations to 21 bits on top of it, three fewer than
# float32 keeps, which shows in the states of a model of 27 layers: 2.1 times was measured (variant "deep").
FLOAT32_FACTOR = 2
CODED_HIDDEN_FACTOR = 3


def bounded(bound, name, expected, single, factor):
    """The bound of an array: what float32 itself makes in the reference may be more."""
    return bound if single is None else max(bound, factor * relative(single[name], expected[name]))


def compare_hidden(label, actual, expected, config, single=None, factor=FLOAT32_FACTOR):
    """expected: {name: float64 array [positions, width]}; single: the same in float32. Every layer's states and experts are compared."""
    moe = moe_layers(config)
    check_equal(f"{label} layers whose experts are compared", sorted(int(k.split(".")[1]) for k in expected if "router_ids." in k), moe)
    check_equal(f"{label} layers whose experts were dumped", sorted(int(k.split(".")[1]) for k in actual if "router_ids." in k), moe)
    for layer in range(config["num_hidden_layers"]):
        for kind in ("after_mixer", "hidden"):
            name = f"{kind}.{layer}"
            check(f"{label} {name}", relative(actual[name], expected[name]), bounded(HIDDEN_BOUND, name, expected, single, factor))
    for layer in moe:
        ids, weights = f"router_ids.{layer}", f"router_weights.{layer}"
        check_equal(f"{label} experts of layer {layer}", actual[ids], expected[ids])
        check(f"{label} expert weights of layer {layer}", relative(actual[weights], expected[weights]),
              bounded(HIDDEN_BOUND, weights, expected, single, factor))


def moe_layers(config):
    """The layers that have experts, by the rule of the architecture; config: fields of config.json."""
    if not config.get("num_experts"):
        return []
    return [layer for layer in range(config["num_hidden_layers"])
            if layer >= config["first_k_dense_replace"] and layer % config.get("moe_layer_freq", 1) == 0]


def read_config(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        return json.load(f)


def read_fixture(data_dir, name):
    with open(os.path.join(data_dir, name + ".json"), encoding="utf-8") as f:
        doc = json.load(f)
    with open(os.path.join(data_dir, doc["binary"]), "rb") as f:
        blob = f.read()
    kinds = {"F64": "<f8", "I32": "<i4"}
    arrays = {}
    for key, info in doc["arrays"].items():
        count = int(np.prod(info["shape"], dtype=np.int64))
        arrays[key] = np.frombuffer(blob, kinds[info["dtype"]], count, info["offset"]).reshape(info["shape"])
    return doc, arrays


def mode_fixtures(shoal, container, data_dir):
    for name in ("short", "medium", "long"):
        doc, expected = read_fixture(data_dir, name)
        with tempfile.TemporaryDirectory() as directory:
            actual = dump(shoal, container, doc["ids"], directory)
        check_equal(f"{name} shape of the logits", actual["logits"].shape[0], len(doc["ids"]))
        if "logits" in expected:
            check(f"{name} logits of every position", relative(actual["logits"], expected["logits"]), LOGIT_BOUND)
            check(f"{name} final norm", relative(actual["final_norm"], expected["final_norm"]), HIDDEN_BOUND)
        check(f"{name} logits of the last position", relative(actual["logits"][-1], expected["logits_last"]), LOGIT_BOUND)
        if expected["hidden.0"].ndim == 1:  # only the last position of the states is stored
            actual = {k: v[-1] if k.startswith(("hidden.", "after_mixer.")) else v for k, v in actual.items()}
        compare_hidden(name, actual, expected, read_config(container))
        check_equal(f"{name} 32 greedy tokens", greedy(shoal, container, doc["ids"], 32), doc["greedy"])


def reference_run(model_dir, ids, dtype):
    import torch
    from kimi_linear_reference import KimiLinear, merge_trace

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    model = KimiLinear(model_dir, getattr(torch, dtype))
    trace = {}
    logits = model.forward_parallel(ids, trace)
    arrays = {k: v.numpy() for k, v in merge_trace(trace).items()}
    arrays["logits"] = logits.numpy()
    return model, arrays


def mode_dequantized(shoal, container, data_dir):
    with tempfile.TemporaryDirectory() as directory:
        weights = os.path.join(directory, "weights")
        run(shoal, "inspect", container, "--dequantize", weights)
        with open(os.path.join(container, "manifest.json")) as manifest:
            codec = json.load(manifest)["settings"]["experts"]
        for name in ("short", "medium", "long"):
            doc, _ = read_fixture(data_dir, name)
            model, expected = reference_run(weights, doc["ids"], "float64")
            dumped = os.path.join(directory, name)
            os.mkdir(dumped)
            actual = dump(shoal, container, doc["ids"], dumped)
            check(f"{name} logits of every position", relative(actual["logits"], expected["logits"]), LOGIT_BOUND)
            compare_hidden(name, actual, expected, read_config(weights))
            fast_directory = os.path.join(directory, f"{name}-fast")
            os.mkdir(fast_directory)
            fast = dump(shoal, container, doc["ids"], fast_directory, "--arithmetic", "fast")
            error = relative(fast["logits"], expected["logits"])
            check(f"{name} logits in fast arithmetic", error, FAST_LOGIT_BOUND[codec])
            check(f"{name} fast arithmetic is really another: bound by error", LOGIT_BOUND / error, 1)
            check_equal(f"{name} 32 greedy tokens", greedy(shoal, container, doc["ids"], 32), model.greedy(doc["ids"], 32))


def compare_with_reference(label, shoal, container, weights, ids, directory, hidden_factor=FLOAT32_FACTOR):
    """The container's pass against the reference on `weights`, a checkpoint; the larger of our bounds and twice float32's error."""
    _, expected = reference_run(weights, ids, "float64")
    _, single = reference_run(weights, ids, "float32")
    os.mkdir(directory)
    actual = dump(shoal, container, ids, directory)
    check(f"{label} logits of every position", relative(actual["logits"], expected["logits"]),
          bounded(LOGIT_BOUND, "logits", expected, single, FLOAT32_FACTOR))
    compare_hidden(label, actual, expected, read_config(weights), single, hidden_factor)


def mode_random(shoal, variants, seeds):
    from random_checkpoint import VARIANTS, make_config, write_checkpoint

    for variant in VARIANTS if variants == "all" else variants.split(","):
        for seed in map(int, seeds.split(",")):
            label = f"{variant} seed {seed}"
            with tempfile.TemporaryDirectory() as directory:
                checkpoint, lossless = (os.path.join(directory, d) for d in ("checkpoint", "lossless"))
                config = make_config(variant)
                # Different seeds also take different storage: dtype, shards, order of tensors.
                write_checkpoint(checkpoint, config, seed, shards=1 + seed % 3, dtype=("BF16", "F16", "F32")[seed % 3],
                                 shuffle=seed % 2 == 1)
                ids = np.random.default_rng(seed + 100).integers(0, config["vocab_size"], 70).tolist()
                run(shoal, "convert", checkpoint, lossless, "--experts", "f32", "--trunk", "f32")
                compare_with_reference(label, shoal, lossless, checkpoint, ids, os.path.join(directory, "f32"))
                for codec in CODECS if seed == 0 else ():
                    coded, weights = (os.path.join(directory, f"{d}-{codec}") for d in ("container", "weights"))
                    run(shoal, "convert", checkpoint, coded, "--experts", codec)
                    run(shoal, "inspect", coded, "--dequantize", weights)
                    compare_with_reference(f"{label} {codec}", shoal, coded, weights, ids, os.path.join(directory, codec),
                                           CODED_HIDDEN_FACTOR)


def main():
    mode, *args = sys.argv[1:]
    {"fixtures": mode_fixtures, "dequantized": mode_dequantized, "random": mode_random}[mode](*args)
    if failures:
        print(f"{len(failures)} comparisons failed:")
        for what in failures:
            print(f"  {what}")
        sys.exit(1)


if __name__ == "__main__":
    main()
