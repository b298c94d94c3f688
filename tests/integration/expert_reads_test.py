#!/usr/bin/env python3
"""One read a missed expert, as the kernel saw it: counts the pread calls on bank files with strace and compares with the program's
own counters.

    expert_reads_test.py SHOAL CONTAINER
"""

import json
import re
import subprocess
import sys
import tempfile


def bank_calls(trace):
    """(system call, bytes it returned) of every call on a bank.

    A line is '123  pread64(9</dir/experts/layer-00001.bank>, "..."..., 20480, 40960) = 20480'. A call that another thread interrupts
    is written as two lines: the first ends in '<unfinished ...>', the second, of the same thread, names no file.
    """
    calls = []
    unfinished = set()  # threads inside a call on a bank
    for line in trace.splitlines():
        thread, text = line.split(maxsplit=1)
        resumed = re.match(r"<\.\.\. (\w+) resumed>", text)
        begun = re.match(r"(\w+)\(.*\.bank>", text)
        if begun and text.endswith("<unfinished ...>"):
            unfinished.add(thread)
        elif begun or (resumed and thread in unfinished):
            unfinished.discard(thread)
            calls.append(((begun or resumed).group(1), int(text.rsplit("= ", 1)[1].split()[0])))
    return calls


def main():
    shoal, container = sys.argv[1:]
    with tempfile.NamedTemporaryFile("r") as log:
        done = subprocess.run(
            ["strace", "-f", "-y", "-e", "trace=pread64,preadv,preadv2,read,readv,mmap", "-o", log.name, shoal, "run", container, "--ids",
             "1,2,3,4,5,6,7,8,9,10", "--max-tokens", "20", "--ignore-eos", "--cache-records", "30", "--json"],
            capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"shoal run under strace failed with status {done.returncode}: {done.stderr}{done.stdout}")
        trace = log.read()
    stats = json.loads(done.stdout)
    calls = bank_calls(trace)
    kinds = {name for name, _ in calls}
    print(f"the kernel saw {len(calls)} calls on banks ({', '.join(sorted(kinds))}); the program counts {stats['expert_reads']} reads, "
          f"{stats['expert_misses']} misses, {stats['expert_hits']} hits, {stats['expert_bytes']} bytes")
    failures = []
    if stats["expert_misses"] == 0 or stats["expert_hits"] == 0:
        failures.append("the run should have both hits and misses")
    if stats["expert_reads"] != stats["expert_misses"]:
        failures.append("reads and misses differ")
    if len(calls) != stats["expert_misses"]:
        failures.append("the kernel's count differs from the misses")
    if kinds != {"pread64"}:
        failures.append("banks are read by pread only")
    sizes = {size for _, size in calls}
    if len(sizes) != 1 or stats["expert_bytes"] != stats["expert_reads"] * next(iter(sizes)):
        failures.append(f"every read is one whole record; sizes seen: {sizes}")
    for failure in failures:
        print(f"FAIL {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
