#!/usr/bin/env python3
"""Perplexity of the bundled validation text, as `shoal eval` prints it, against the float64 reference.

    perplexity_compare.py SHOAL F32_CONTAINER VALID_TXT PERPLEXITY_JSON KEY

KEY is a case of the JSON file: first_4096, or whole_windows_1024 (every token of the text in windows of 1024).
"""

import json
import subprocess
import sys


def main():
    shoal, container, text, expected_file, key = sys.argv[1:]
    with open(expected_file, encoding="utf-8") as f:
        want = json.load(f)[key]
    flags = {"first_4096": ["--ctx", "4096", "--limit", "4096"], "whole_windows_1024": ["--window", "1024"]}[key]
    out = subprocess.run([shoal, "eval", container, "--file", text, "--json", *flags], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"shoal eval failed with status {out.returncode}: {out.stderr}{out.stdout}")
    actual = json.loads(out.stdout)
    failed = False
    for field, name in (("predictions", "predictions"), ("nats_per_token", "nll_mean"), ("perplexity", "perplexity"),
                        ("bits_per_byte", "bits_per_byte")):
        difference = abs(actual[field] / want[name] - 1)
        ok = difference <= (0 if field == "predictions" else 1e-4)
        failed |= not ok
        print(f"{'ok  ' if ok else 'FAIL'} {key} {field}: {actual[field]} against {want[name]} (relative {difference:.1e})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
