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


class Conversion:
    def __init__(self, shoal, checkpoint, codec, directory):
        self.shoal = shoal
        self.codec = codec
        self.container = os.path.join(directory, codec)
        report = json.loads(run(shoal, "convert", checkpoint, self.container, "--experts", codec, "--trunk", "f32", "--json"))
        layers = [layer["relative_error"] for layer in report["layers"]]
        self.squared_error = float(np.mean(np.square(layers)))


class Answers:
    """What a conversion says of a text in one arithmetic: its perplexity, and its log-probabilities."""

    def __init__(self, conversion, arithmetic, text, tokens, directory):
        self.name = f"{conversion.codec} {arithmetic}"
        dump = os.path.join(directory, "logits.npy")
        result = json.loads(run(conversion.shoal, "eval", conversion.container, "--file", text, "--limit", str(tokens), "--window", str(WINDOW),
                                "--arithmetic", arithmetic, "--dump-logits", dump, "--json"))
        self.perplexity = result["perplexity"]
        self.log_probabilities = log_softmax(np.load(dump))

    def compare(self, other):
        p = np.exp(other.log_probabilities)
        kl = (p * (other.log_probabilities - self.log_probabilities)).sum(axis=1)
        same = np.mean(other.log_probabilities.argmax(axis=1) == self.log_probabilities.argmax(axis=1))
        logits = np.sqrt(np.mean(np.square(other.log_probabilities - self.log_probabilities)))
        print(f"{self.name} against {other.name}: perplexity {self.perplexity:.4f}  KL {kl.mean():.3e} nats (standard error "
              f"{kl.std() / np.sqrt(len(kl)):.1e})  log-probabilities differ by {logits:.2e}  same likeliest token {same:.4f}  positions {len(kl)}",
              flush=True)


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    shoal, checkpoint, text = sys.argv[1:4]
    tokens = int(sys.argv[4]) if len(sys.argv) == 5 else 8192
    with tempfile.TemporaryDirectory() as directory:
        unquantized = Answers(Conversion(shoal, checkpoint, "f32", directory), "exact", text, tokens, directory)
        print(f"f32: perplexity {unquantized.perplexity:.4f}", flush=True)
        for codec in CODECS:
            conversion = Conversion(shoal, checkpoint, codec, directory)
            print(f"{codec}: D {conversion.squared_error:.4f}")
            exact, fast = (Answers(conversion, arithmetic, text, tokens, directory) for arithmetic in ("exact", "fast"))
            exact.compare(unquantized)
            fast.compare(unquantized)
            fast.compare(exact)


if __name__ == "__main__":
    main()
