#!/usr/bin/env python3
"""`shoal shard` as a user runs it, and kill -9 of it shortly after every file that it finishes: the partitions that come out at the end
have the bytes of those that were made in peace, finished banks are not written again, and until then there are none.

    shard_kill_test.py SHOAL CONTAINER
"""

import json
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


def banks(directory):
    """Finished banks, each with its inode: a bank that is written again has another."""
    found = {}
    for folder, _, files in os.walk(directory):
        for name in files:
            if name.endswith(".bank"):
                path = os.path.join(folder, name)
                try:
                    found[path.replace(".partial/partition/", "/")] = os.stat(path).st_ino
                except FileNotFoundError:
                    pass  # the partition has just got its final name
    return found


def write_plan(path, identity, experts, units):
    """Three nodes: two share the units of the first experts, one has the others; one stores a copy."""
    half, cut = experts // 2, units // 3
    nodes = [
        {"name": "attic", "slices": [{"units": [0, cut], "experts": [0, half]}], "copies": [{"units": [cut, units], "experts": [0, half]}]},
        {"name": "cellar", "slices": [{"units": [cut, units], "experts": [0, half]}]},
        {"name": "desk", "slices": [{"units": [0, units], "experts": [half, experts]}]},
    ]
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"format": "shoal-pool-plan", "version": 1, "identity": identity, "epoch": 1, "nodes": nodes}, f)


def kills(program, arguments, out, reference, seconds):
    """Kills the command after every file until it gets through; returns how often it was killed."""
    rng = random.Random(11)
    count = 0
    written_again = []
    appeared_early = []
    while count < 60:
        before = banks(out)
        process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(banks(out)) == len(before):
            time.sleep(0.001)
        # One more bank is there; the next is being made.
        time.sleep(rng.uniform(0, 0.2) * seconds / 8)
        process.kill()
        if process.wait() == 0:
            break
        count += 1
        after = banks(out)
        written_again += [path for path in before if after.get(path) != before[path]]
        for name in os.listdir(out) if os.path.exists(out) else []:
            if not name.endswith(".partial") and read_tree(os.path.join(out, name)) != read_tree(os.path.join(reference, name)):
                appeared_early.append(name)
    check(not written_again, "a finished bank is not written again", written_again)
    check(not appeared_early, "no half partition ever had its final name", appeared_early)
    return count


def main():
    program, container = sys.argv[1:]
    shoal = Shoal(program)
    about = shoal.ok("inspect", container, "--json").json
    with tempfile.TemporaryDirectory() as directory:
        plan = os.path.join(directory, "pool.json")
        write_plan(plan, about["identity"], about["num_experts"], 8)
        peaceful = os.path.join(directory, "peaceful")
        begin = time.monotonic()
        report = shoal.ok("shard", container, "--plan", plan, "--out", peaceful, "--json").json
        seconds = time.monotonic() - begin
        check([node["name"] for node in report["nodes"]] == ["attic", "cellar", "desk"], "every node is reported", report)
        again = shoal.ok("shard", container, "--plan", plan, "--out", peaceful, "--json").json
        check(all(node["already_there"] for node in again["nodes"]), "what is there is left as it is", again)

        out = os.path.join(directory, "out")
        count = kills(program, ["shard", container, "--plan", plan, "--out", out], out, peaceful, seconds)
        check(count >= 3, f"the command was killed {count} times before it got through")
        shoal.ok("shard", container, "--plan", plan, "--out", out)
        expected, result = read_tree(peaceful), read_tree(out)
        check(result == expected, "the bytes are those of undisturbed work, and nothing is left beside them",
              [name for name in expected.keys() | result.keys() if result.get(name) != expected.get(name)])

        attic = os.path.join(out, "attic")
        about = shoal.ok("inspect", attic, "--json").json
        check(about["name"] == "attic" and len(about["slices"]) == 2, "inspect describes a partition", about)
        check(shoal.ok("inspect", attic, "--verify", "--json").json == {"whole": True, "problems": []}, "inspect --verify finds it whole")
        bank = next(path for path in banks(attic) if path.endswith("layer-00003.bank"))
        with open(bank, "r+b") as f:
            f.seek(5000)
            f.write(b"damage")
        shoal.refused(["inspect", attic, "--verify"], 4, "layer-00003.bank", "layer 3 expert 0", "SHA-256")
        shoal.refused(["run", attic, "x"], 1, attic, "partition of a node")
        shoal.refused(["shard", container, "--plan", plan + "-missing", "--out", out], 1, "--plan: open", "-missing")
        shoal.refused(["shard", container, "--plan", plan], 2, "--out OUT is missing")
        shoal.refused(["shard", container, "--plan", plan, "--out", out, "--node", "roof"], 1, '"roof"', "attic, cellar, desk")
        interrupted = os.path.join(directory, "interrupted")
        result = shoal.interrupted(["shard", container, "--plan", plan, "--out", interrupted], lambda _: len(banks(interrupted)) > 0)
        check(result.status in (0, 130) and (result.status == 0 or "goes on from there" in result.error), "Ctrl-C stops it",
              f"{result.status}: {result.error}")
    finish()


if __name__ == "__main__":
    main()
