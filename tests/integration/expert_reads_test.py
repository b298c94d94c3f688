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
    # "123 pread64(9</dir/experts/layer-00001.bank>, "..."..., 20480, 40960) = 20480"; a call that another thread interrupts is
    # written in two lines, of which the first names the file.
    calls = [line for line in trace.splitlines() if ".bank>" in line and "resumed>" not in line]
    kinds = {re.search(r"\d+ (\w+)\(", line).group(1) for line in calls}
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
    sizes = {int(m.group(1)) for line in calls if (m := re.search(r", (\d+), \d+(\)| <unfinished)", line))}
    if len(sizes) != 1 or stats["expert_bytes"] != stats["expert_reads"] * next(iter(sizes)):
        failures.append(f"every read is one whole record; sizes seen: {sizes}")
    for failure in failures:
        print(f"FAIL {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
