#!/usr/bin/env python3
"""kill -9 of `shoal convert` shortly after every file that it finishes: the container that comes out at the end has the bytes of one
that was made in peace, and until then there is none.

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


def published(target):
    """How many files an unfinished conversion has finished."""
    return sum(not name.endswith(".tmp") for _, _, files in os.walk(target + ".partial") for name in files)


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
            before = published(target)
            process = subprocess.Popen([program, "convert", checkpoint, target, "--jobs", str(1 + kills % 2)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and published(target) == before:
                time.sleep(0.001)
            # One more file is there; the next is being made.
            time.sleep(rng.uniform(0, 0.2) * whole / 8)
            if process.poll() is None:
                process.kill()
                kills += 1
                appeared_early |= os.path.exists(target) and read_tree(target) != reference
            process.wait()
        check(kills >= 3, f"the conversion was killed {kills} times before it got through")
        check(not appeared_early, "no half container ever had the final name")
        result = read_tree(target)
        check(result == reference, "the bytes are those of an undisturbed conversion",
              [name for name in reference if result.get(name) != reference[name]])
        check(not os.path.exists(target + ".partial"), "nothing is left beside it")
    finish()


if __name__ == "__main__":
    main()
