#!/usr/bin/env python3
"""kill -9 of `shoal convert` at any moment, again and again: the container that comes out at the end has the bytes of one that was
made in peace, and until then there is none.

    convert_kill_test.py SHOAL CHECKPOINT
"""

import os
import random
import subprocess
import sys
import tempfile
import time

from shoal_program import Shoal, check, finish


def read_tree(directory):
    tree = {}
    for folder, _, files in os.walk(directory):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                tree[os.path.relpath(path, directory)] = f.read()
    return tree


def main():
    program, checkpoint = sys.argv[1:]
    shoal = Shoal(program)
    rng = random.Random(11)
    with tempfile.TemporaryDirectory() as directory:
        peaceful = os.path.join(directory, "peaceful")
        begin = time.monotonic()
        shoal.ok("convert", checkpoint, peaceful, "--jobs", 1)
        whole = time.monotonic() - begin
        reference = read_tree(peaceful)

        target = os.path.join(directory, "target")
        kills = 0
        appeared_early = False
        while not os.path.exists(target) and kills < 40:
            process = subprocess.Popen([program, "convert", checkpoint, target, "--jobs", str(1 + kills % 2)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=rng.uniform(0.02, 0.45) * whole)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                appeared_early |= os.path.exists(target) and read_tree(target) != reference
        check(kills >= 3, f"the conversion was killed {kills} times before it got through")
        check(not appeared_early, "no half container ever had the final name")
        result = read_tree(target)
        check(result == reference, "the bytes are those of an undisturbed conversion",
              [name for name in reference if result.get(name) != reference[name]])
        check(not os.path.exists(target + ".partial"), "nothing is left beside it")
    finish()


if __name__ == "__main__":
    main()
