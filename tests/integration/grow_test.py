#!/usr/bin/env python3
"""`shoal plan --keep`: machines join and leave a pool whose nodes keep what they store. Real nodes fetch what was predicted and no more,
and an answer that goes on meanwhile does not change.

    grow_test.py SHOAL SHOAL_NODE CONTAINER
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile

from fill_test import Node
from plan_pool_test import free_addresses, spec_node
from pool_test import GENERATE, addresses
from serve_test import Program
from shard_kill_test import read_tree
from shoal_program import Shoal, check, finish

UNITS = 8
PAGE = 4096
RATE = 1e6


class Growing:
    def __init__(self, shoal, node_program, container, work, stack):
        self.shoal, self.program, self.container, self.work, self.stack = shoal, node_program, container, work, stack
        self.answer = shoal.ok("run", container, *GENERATE).json["ids"]
        self.nodes = {}
        self.serve = None

    def path(self, name):
        return os.path.join(self.work, name)

    def node(self, name, address, *args):
        self.nodes[name] = Node(self.program, self.path(name), "--name", name, *args, listen=address)
        self.stack.callback(self.nodes[name].end)

    def spec(self, names):
        path = self.path("spec.json")
        with open(path, "w") as file:
            nodes = [spec_node(name, self.nodes[name].address, RATE) for name in names]
            json.dump({"format": "shoal-pool-spec", "version": 1, "nodes": nodes}, file)
        return path

    def plan(self, name, *args):
        path = self.path(f"{name}.json")
        said = self.shoal.ok("plan", self.container, "--out", path, "--json", *args).json
        with open(path) as file:
            return path, said, json.load(file)

    def run(self, plan, label):
        result = self.shoal.ok("run", self.container, *GENERATE, "--nodes", plan, "--pool-alone").json
        check(result["ids"] == self.answer, f"{label}: the tokens of one machine")
        return {node["name"]: node["requests"] for node in result["nodes"]}

    def fetched(self, nodes, label, said):
        """What was filled is what is new, and it fetched what was predicted."""
        fetched = sum(node["bank_bytes"] - node["bytes_kept"] for node in nodes if not node["already_filled"])
        check(fetched == said["replan"]["moved_bytes"] > 0, f"{label}: as many bytes are fetched as were predicted", f"{fetched} {said['replan']}")
        filled = [node["name"] for node in nodes if not node["already_filled"]]
        check(filled == said["replan"]["added"], f"{label}: the new node alone fetches", str(nodes))

    def cluster(self, *args):
        return self.shoal.run("cluster", *args, "--at", self.serve.address, "--json")

    def two(self):
        for name, address in zip("ab", free_addresses(2)):
            self.node(name, address, "--no-measure", "--allow-drill")
        old, _, plan = self.plan("two", "--nodes", self.spec("ab"), "--placement", "units")
        check([node["slices"][0]["units"] for node in plan["nodes"]] == [[0, 4], [4, 8]], "two nodes with half of the units each", str(plan))
        self.shoal.ok("fill", self.container, "--plan", old)
        self.serve = Program(self.shoal.program, "serve", self.container, "--nodes", old, "--listen", "127.0.0.1:0", "--pool-alone", "--json")
        self.stack.callback(self.serve.end)
        return old

    def joins_in_mid_answer(self, old):
        """3 of 8 units for each of two, and 2 for the third, from the ends that meet."""
        self.node("c", "127.0.0.1:0", "--no-measure")
        before = {name: read_tree(self.path(name)) for name in "ab"}
        path, said, plan = self.plan("three", "--nodes", self.spec("abc"), "--keep", old)
        whole = {"experts": [0, 32]}
        expected = [("a", [[0, 3]], [[3, 4]]), ("b", [[5, 8]], [[4, 5]]), ("c", [[3, 5]], [])]
        check([(n["name"], n["slices"], n["copies"]) for n in plan["nodes"]] ==
              [(name, [{"units": u, **whole} for u in mine], [{"units": u, **whole} for u in copies]) for name, mine, copies in expected],
              "a third node gets units from both", str(plan))
        replan = said["replan"]
        check(plan["epoch"] == 2 and replan["epoch"] == 2 and replan["added"] == ["c"] and replan["gone"] == [], "the next epoch, one node more", str(replan))
        model = self.shoal.ok("inspect", self.container, "--json").json
        # Two of the eight units of an expert, in whole pages.
        record = -(-2 * model["record_bytes"] // UNITS // PAGE) * PAGE
        check(replan["moved_bytes"] == record * model["num_experts"] * model["num_moe_layers"], "two of eight units are fetched", str(replan))
        check(replan["anew"]["moved_bytes"] > replan["moved_bytes"], "placed anew more would be fetched", str(replan))
        text = self.shoal.ok("plan", self.container, "--nodes", self.spec("abc"), "--keep", old, "--explain").text
        check(all(words in text for words in ("new: c", "To be fetched", "of all expert bytes", "fetch nothing")), "and said to people", text)
        early = self.cluster("plan", "--change-to", path)
        check(early.status == 1 and "node c" in early.error, "not before the new node has its units", early.error)

        answer = subprocess.Popen([self.shoal.program, "cluster", "drill", "slow", "a", "--factor", "2", "--tokens", "400", "--at", self.serve.address, "--json"],
                                  stdout=subprocess.PIPE)
        changed = self.cluster("plan", "--change-to", path, "--fill")
        check(changed.status == 0, "the new node is filled and the next plan in force", changed.error)
        self.fetched(changed.json["filled"], "three", said)
        check(self.serve.address in changed.json["filled"][2]["sources"], "from the coordinator, among others", changed.text)
        check(answer.poll() is None, "in mid-answer")
        report = json.loads(answer.communicate()[0])
        check(report["same_tokens"] and report["same_logits"], "the answer goes on with the same bits", str(report))
        status = self.cluster("status", "--interval", 10).json
        check(status["epoch"] == 2 and all(node["requests"] > 0 for node in status["nodes"]), "all three compute", str(status))
        check({name: read_tree(self.path(name)) for name in "ab"} == before, "those that were there are as they were")
        check(all(count > 0 for count in self.run(path, "three").values()), "three: every node computed")
        return path

    def dies(self, plan):
        """What the third computes the others still store."""
        self.nodes["c"].end()
        requests = self.run(plan, "the third is dead")
        check(requests["c"] == 0 and requests["a"] > 0 and requests["b"] > 0, "the third is dead: the others compute its part", str(requests))
        path, said, written = self.plan("two-again", "--nodes", self.spec("ab"), "--keep", plan)
        check(said["replan"]["gone"] == ["c"] and said["replan"]["moved_bytes"] == 0 and written["epoch"] == 3, "it is gone for good and nothing is fetched", str(said["replan"]))
        check([node["slices"] for node in written["nodes"]] == [[{"units": [0, 4], "experts": [0, 32]}], [{"units": [4, 8], "experts": [0, 32]}]],
              "what it computed is taken back", str(written))
        self.run(path, "two again")
        return path

    def measured(self, plan):
        """The same with rates that real nodes measured; the second node is gone, and a new one replaces it."""
        for node in self.nodes.values():
            node.end()
        self.node("a", self.nodes["a"].address)
        self.node("d", "127.0.0.1:0")
        nodes = [self.nodes["a"], self.nodes["d"]]
        keep = ("--nodes", addresses(nodes), "--keep", plan)
        self.shoal.refused(("plan", self.container, *keep), 1, "units 4-7", "b too", "--replace")
        path, said, written = self.plan("replaced", *keep, "--replace")
        check(written["epoch"] == 4 and said["replan"]["gone"] == ["b"], "a node is replaced", str(said["replan"]))
        begin, end = said["best"]["nodes"][1]["units"]
        check(begin <= 4 and end == UNITS, "by one that fetches what is lost", str(said["best"]))
        filled = self.shoal.ok("fill", self.container, "--plan", path, "--json").json["nodes"]
        self.fetched(filled, "replaced", said)
        check(filled[1]["sources"][0] == nodes[0].address, "nodes that hold something are asked before DIR", str(filled))
        self.run(path, "replaced")

    def refusals(self, plan):
        new = self.path("refused.json")
        self.shoal.refused(("plan", self.container, "--keep", plan), 2, "--nodes")
        again = self.cluster("plan", "--change-to", self.path("two.json"), "--fill")
        check(again.status == 1 and "the one in force has 2" in again.error, "an old plan is refused before anything is filled", again.error)
        alone = self.cluster("plan", "--fill")
        check(alone.status == 2 and "--change-to" in alone.error, "--fill is about another plan", alone.error)
        self.shoal.refused(("plan", self.container, "--nodes", self.spec("ab"), "--replace"), 2, "--keep")
        self.shoal.refused(("plan", self.container, "--nodes", self.spec("ab"), "--keep", self.path("missing.json"), "--out", new), 1, "missing.json")
        self.shoal.refused(("plan", self.container, "--nodes", self.spec("ab"), "--keep", plan, "--placement", "experts"), 1, "by units, not by experts")
        self.shoal.refused(("plan", self.container, "--nodes", self.spec("ab"), "--keep", plan, "--copies", 2, "--out", new), 1, "stored once")
        self.shoal.refused(("plan", self.container, "--nodes", self.spec("a"), "--keep", plan, "--out", new), 1, "units 4-7", "b too")
        check(not os.path.exists(new), "a plan that is refused is not written")


def main():
    shoal, node_program, container = Shoal(sys.argv[1]), sys.argv[2], sys.argv[3]
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        growing = Growing(shoal, node_program, container, work, stack)
        two = growing.two()
        three = growing.joins_in_mid_answer(two)
        two_again = growing.dies(three)
        growing.refusals(two_again)
        growing.serve.end()
        growing.measured(two_again)
    finish()


if __name__ == "__main__":
    main()
