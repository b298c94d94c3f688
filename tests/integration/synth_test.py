#!/usr/bin/env python3
"""Containers of random weights as a user makes and uses them, alone and on a pool.

    synth_test.py SHOAL SHOAL_NODE
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from pool_test import addresses, nodes_of
from shoal_program import Shoal, check, finish

SMALL = ("--like", "tiny", "--layers", 4, "--experts", 12, "--vocab", 512, "--seed", 3)
GENERATE = ("Once upon a time", "--max-tokens", 12, "--json")


def every_command_takes_it(shoal, model):
    made = shoal.ok("synth", model, *SMALL, "--json").json
    # Three layers of 12 records of the bundled model's experts (docs/format.md, section 10).
    check(made["moe_layers"] == 3 and made["experts"] == 12 and made["record_bytes"] == 20480 and not made["already_there"],
          "the report has layers, experts and the size of a record", str(made))
    again = shoal.ok("synth", model, *SMALL, "--json").json
    check(again["already_there"] and again["identity"] == made["identity"], "the same command finds it there")
    shoal.refused(["synth", model, *SMALL[:-1], 4], 1, "holds another container")
    shoal.refused(["synth", model + "-new", "--layers", 4], 2, "--like")
    shoal.refused(["synth", model + "-new", "--like", "tiny", "--experts", "bogus"], 2, "--experts 'bogus'")
    shoal.refused(["synth", model + "-new", "--like", "tiny", "--experts", 3], 2, "--experts 3", "4 to 32")
    check(shoal.ok("inspect", model, "--verify", "--json").json["whole"], "inspect --verify finds it whole")
    check(shoal.ok("plan", model, "--json").json["fits"], "plan takes it")
    bench = shoal.ok("bench", model, "--prefill", 8, "--decode", 4, "--json").json
    check(bench["decode"]["tokens"] == 4, "bench takes it")
    answer = shoal.ok("run", model, *GENERATE).json
    check(len(answer["ids"]) == 12 and answer["finish_reason"] == "length", "an answer has the length that was asked for")
    return answer["ids"]


def a_pool_answers_the_same(shoal, node, model, directory, expected):
    rates = {"read_bytes_per_second": 1e9, "compute_bytes_per_second": 1e9, "link_bytes_per_second": 1e9,
             "round_trip_ms": 0, "free_disk_bytes": 10**12}
    spec = os.path.join(directory, "spec.json")
    with open(spec, "w", encoding="utf-8") as file:
        json.dump({"format": "shoal-pool-spec", "version": 1,
                   "nodes": [{"name": name, **rates} for name in ("attic", "cellar", "shed")]}, file)
    plan = os.path.join(directory, "plan.json")
    shoal.ok("plan", model, "--nodes", spec, "--placement", "units", "--out", plan)
    shoal.ok("shard", model, "--plan", plan, "--out", os.path.join(directory, "parts"))
    parts = [os.path.join(directory, "parts", name) for name in ("attic", "cellar", "shed")]
    with nodes_of(node, parts, "--allow-drill", "--drill-read-rate", "50MB") as nodes:
        found = shoal.ok("run", model, *GENERATE, "--nodes", addresses(nodes), "--pool-alone").json["ids"]
        check(found == expected, "three nodes with throttled disks give the tokens of one machine", f"{found}, not {expected}")
        links = shoal.ok("bench", "link", model, "--nodes", addresses(nodes), "--round-trips", 20, "--batches", 2, "--json").json["nodes"]
        check([link["name"] for link in links] == ["attic", "cellar", "shed"], "bench link names the nodes", str(links))
        check(all(0 < link["round_trip_p50_ms"] <= link["round_trip_p95_ms"] for link in links), "and times them", str(links))
        table = shoal.ok("bench", "link", model, "--nodes", addresses(nodes[:1]), "--round-trips", 20, "--batches", 2).text
        check("attic" in table and " ms" in table, "for people too", table)
        gone = nodes[2].address
    shoal.refused(["bench", "link", model, "--nodes", gone], 1, gone)
    shoal.refused(["bench", "link", model], 2, "--nodes")


def interrupted_and_killed(shoal, directory):
    target = os.path.join(directory, "large")
    arguments = ("synth", target, "--like", "tiny", "--layers", 400, "--vocab", 512)

    def begun(_=None):
        return os.path.exists(os.path.join(target + ".partial", "container", "experts"))

    result = shoal.interrupted(arguments, begun)
    check(result.status == 130 and "begins again" in result.error, "Ctrl-C ends with 130", f"{result.status}: {result.error}")
    check(not os.path.exists(target) and not os.path.exists(target + ".partial"), "and leaves nothing")
    process = subprocess.Popen([shoal.program, *map(str, arguments)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not begun() and process.poll() is None:
        time.sleep(0.01)  # between two looks at the condition
    process.send_signal(signal.SIGKILL)
    process.wait()
    check(begun() and not os.path.exists(target), "killed, the work is left in DIR.partial")
    shoal.ok("synth", target, "--like", "tiny", "--layers", 3, "--vocab", 512)
    check(shoal.ok("inspect", target, "--verify", "--json").json["whole"] and not os.path.exists(target + ".partial"),
          "and another run replaces it")


def main():
    program, node = sys.argv[1:]
    shoal = Shoal(program)
    with tempfile.TemporaryDirectory() as directory:
        model = os.path.join(directory, "model")
        expected = every_command_takes_it(shoal, model)
        a_pool_answers_the_same(shoal, node, model, directory, expected)
        interrupted_and_killed(shoal, directory)
    finish()


if __name__ == "__main__":
    main()
