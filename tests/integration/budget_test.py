#!/usr/bin/env python3
"""The memory budget is a hard ceiling: the system's own peak resident size of a run stays under it.

    budget_test.py SHOAL CONTAINER
"""

import json
import os
import subprocess
import sys


def run(*args, stdin=""):
    """Exit status, standard output and peak resident bytes of a program, as the kernel counts them."""
    process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(stdin)
    process.stdin.close()
    out = process.stdout.read()
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, out, error, usage.ru_maxrss * 1024


def expect(ok, what):
    print(f"{'ok  ' if ok else 'FAIL'} {what}")
    if not ok:
        sys.exit(1)


def main():
    shoal, container = sys.argv[1:]
    for context in ("256", "4096"):
        status, out, error, _ = run(shoal, "plan", container, "--ctx", context, "--json")
        expect(status == 0, f"plan with --ctx {context} ends with 0: {error}")
        floor = json.loads(out)["floor_bytes"]
        prompt = ",".join(str(i * 37 % 3840) for i in range(int(context) // 2))
        answers = []
        for budget in (floor, floor + (8 << 20), 2 * floor):
            status, out, error, peak = run(shoal, "run", container, "--ids", prompt, "--ctx", context, "--budget", str(budget),
                                           "--max-tokens", "40", "--ignore-eos", "--json")
            expect(status == 0, f"run with a budget of {budget} bytes ends with 0: {error}")
            result = json.loads(out)
            expect(peak <= budget, f"--ctx {context}: peak of {peak} bytes is within the budget of {budget}")
            expect(result["peak_rss_bytes"] <= budget, "and so is the peak the program reports")
            answers.append(result["ids"])
        expect(all(ids == answers[0] for ids in answers), "the answer does not depend on the budget")

        model = ("--ctx", context, "--budget", str(floor), "--json")
        for label, args, stdin in (
            ("run with drawn tokens", ("run", container, "--ids", prompt, "--max-tokens", "40", "--ignore-eos", "--temperature", "1"), ""),
            ("eval of one context", ("eval", container, "--ids", prompt, "--next", "10"), ""),
            ("eval in windows", ("eval", container, "--ids", prompt, "--window", "64"), ""),
            ("eval of a text", ("eval", container), "once upon a time there was a king\n" * 2000),
            ("chat", ("chat", container, "--max-tokens", "20", "--ignore-eos"), "Hello\nHow are you?\n"),
            ("chat with drawn tokens", ("chat", container, "--max-tokens", "20", "--temperature", "1"), "Hello\nHow are you?\n"),
        ):
            status, out, error, peak = run(shoal, *args, *model, stdin=stdin)
            expect(status == 0, f"{label} with a budget of the floor ends with 0: {error}")
            expect(peak <= floor, f"--ctx {context}: {label}: peak of {peak} bytes is within the floor of {floor}")

        status, out, error, _ = run(shoal, "run", container, "--ids", "1", "--ctx", context, "--budget", str(floor - 1))
        expect(status == 3, f"a budget one byte below the floor ends with 3, not {status}")
        expect(all(part in error for part in ("trunk", "kv_cache", "expert_cache", "floor", "--budget")),
               "and prints the table of parts")


if __name__ == "__main__":
    main()
