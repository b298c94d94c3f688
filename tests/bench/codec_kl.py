#!/usr/bin/env python3
"""What the expert codecs lose on a model: mean KL divergence of next-token distributions from the unquantized model, and perplexity.

    codec_kl.py SHOAL CHECKPOINT TEXT [TOKENS]

Converts the checkpoint with every codec (trunk f32, so that only experts differ), runs the first TOKENS (default: 8192) of the text in windows of
1024 and compares the logits of every position in float64.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

CODECS = ["rvq3", "tcq3"]
WINDOW = 1024


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(args)} failed with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


class Model:
    """A conversion with one codec: what `shoal` says of it, and its log-probabilities."""

    def __init__(self, shoal, checkpoint, codec, text, tokens, directory):
        container = os.path.join(directory, codec)
        dump = os.path.join(directory, "logits.npy")
        report = json.loads(run(shoal, "convert", checkpoint, container, "--experts", codec, "--trunk", "f32", "--json"))
        layers = [layer["relative_error"] for layer in report["layers"]]
        self.squared_error = float(np.mean(np.square(layers)))
        result = json.loads(run(shoal, "eval", container, "--file", text, "--limit", str(tokens), "--window", str(WINDOW), "--dump-logits", dump,
                                "--json"))
        self.perplexity = result["perplexity"]
        self.log_probabilities = log_softmax(np.load(dump))


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    shoal, checkpoint, text = sys.argv[1:4]
    tokens = int(sys.argv[4]) if len(sys.argv) == 5 else 8192
    with tempfile.TemporaryDirectory() as directory:
        exact = Model(shoal, checkpoint, "f32", text, tokens, directory)
        print(f"f32   perplexity {exact.perplexity:.4f}")
        for codec in CODECS:
            model = Model(shoal, checkpoint, codec, text, tokens, directory)
            p = np.exp(exact.log_probabilities)
            kl = (p * (exact.log_probabilities - model.log_probabilities)).sum(axis=1)
            same = np.mean(exact.log_probabilities.argmax(axis=1) == model.log_probabilities.argmax(axis=1))
            logits = np.sqrt(np.mean(np.square(exact.log_probabilities - model.log_probabilities)))
            print(f"{codec}  perplexity {model.perplexity:.4f}  KL {kl.mean():.5f} nats (standard error {kl.std() / np.sqrt(len(kl)):.5f})  "
                  f"log-probabilities differ by {logits:.4f}  same likeliest token {same:.4f}  D {model.squared_error:.4f}  positions {len(kl)}")


if __name__ == "__main__":
    main()
