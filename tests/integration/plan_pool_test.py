#!/usr/bin/env python3
"""`shoal plan --nodes`: from rates in a file and from real nodes to a pool that answers as one machine does.

    plan_pool_test.py SHOAL SHOAL_NODE CONTAINER
"""

import json
import os
import socket
import sys
import tempfile

from pool_test import GENERATE, Node, addresses, nodes_of
from shoal_program import Shoal, check, finish


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    taken = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return taken


def spec_node(name, address, rate, **other):
    return {"name": name, "address": address, "read_bytes_per_second": rate, "compute_bytes_per_second": 1e12,
            "link_bytes_per_second": 1e9, "round_trip_ms": 0, "free_disk_bytes": 10**12, **other}


class Planning:
    def __init__(self, shoal, node_program, container, work):
        self.shoal, self.node, self.container, self.work = shoal, node_program, container, work
        self.answer = shoal.ok("run", container, *GENERATE).json["ids"]

    def path(self, name):
        return os.path.join(self.work, name)

    def spec(self, name, nodes):
        with open(self.path(name), "w") as file:
            json.dump({"format": "shoal-pool-spec", "version": 1, "nodes": nodes}, file)
        return self.path(name)

    def run(self, plan, what):
        result = self.shoal.ok("run", self.container, *GENERATE, "--nodes", plan, "--pool-alone").json
        check(result["ids"] == self.answer, f"{what}: the tokens of one machine")
        check(all(node["requests"] > 0 for node in result["nodes"]), f"{what}: every node computed", str(result["nodes"]))

    def from_a_file(self):
        """Rates 1 and 3 give 2 and 6 of the 8 units; the plan goes to `shard`, and to `run`."""
        first, second = free_addresses(2)
        spec = self.spec("spec.json", [spec_node("a", first, 1e6), spec_node("b", second, 3e6)])
        plan = self.path("pool.json")
        said = self.shoal.ok("plan", self.container, "--nodes", spec, "--placement", "units", "--copies", 2, "--out", plan, "--json").json
        best = said["best"]
        check([node["units"] for node in best["nodes"]] == [[0, 2], [2, 8]], "units in proportion to the rates", str(best))
        with open(plan) as file:
            written = json.load(file)
        check([n["address"] for n in written["nodes"]] == [first, second] and written["epoch"] == 1, "the plan has the addresses", str(written))
        self.shoal.ok("shard", self.container, "--plan", plan, "--out", self.path("partitions"))
        for node in best["nodes"]:
            directory = self.path(f"partitions/{node['name']}")
            stored = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(directory) for name in names
                         if name not in ("partition.json", "SHA256SUMS", "manifest.json"))
            check(stored == node["stored_bytes"], f"{node['name']} stores what was said", f"{stored} and {node['stored_bytes']}")
        nodes = []
        try:
            for name, address in (("a", first), ("b", second)):
                nodes.append(Node(self.node, self.path(f"partitions/{name}"), listen=address))
            self.run(plan, "a plan from a file")
        finally:
            for node in nodes:
                node.end()
        self.shoal.ok("plan", self.container, "--nodes", spec, "--out", plan)
        with open(plan) as file:
            check(json.load(file)["epoch"] == 2, "the next plan has the next epoch")

    def own(self):
        """The coordinator is measured and computes too, out of the container, while the node does its part."""
        node = Node(self.node, self.container, measure=True)
        try:
            plan = self.path("own.json")
            said = self.shoal.ok("plan", self.container, "--nodes", node.address, "--own", "--placement", "units", "--out", plan, "--json").json
            placed = {n["name"]: n for n in said["best"]["nodes"]}
            check(set(placed) == {node.name, "coordinator"} and placed["coordinator"]["stored_bytes"] == 0, "the coordinator is placed beside the node", str(said))
            begin, end = placed["coordinator"]["units"]
            result = self.shoal.ok("run", self.container, *GENERATE, "--nodes", plan).json
            check(result["ids"] == self.answer, "the coordinator computes its part: the tokens of one machine")
            check([n["name"] for n in result["nodes"]] == [node.name] and result["nodes"][0]["requests"] > 0, "the node computed its part", str(result["nodes"]))
            check(0 < result["expert_reads"] and 0 < end - begin < 8, "and the coordinator the rest", str(result))
            refused = self.shoal.run("run", self.container, *GENERATE, "--nodes", plan, "--pool-alone")
            check(refused.status == 1 and "--pool-alone" in refused.error, "--pool-alone contradicts such a plan", refused.error)
            check(self.shoal.run("shard", self.container, "--plan", plan, "--node", "coordinator", "--out", self.path("none")).status != 0,
                  "the coordinator needs no partition")
        finally:
            node.end()

    def from_nodes(self):
        nodes = []
        try:
            for _ in range(2):
                nodes.append(Node(self.node, self.container, measure=True))
            plan = self.path("asked.json")
            said = self.shoal.ok("plan", self.container, "--nodes", addresses(nodes), "--out", plan, "--placement", "units", "--json").json
            asked = said["best"]["nodes"]
            check(sorted(n["address"] for n in asked) == sorted(n.address for n in nodes), "both nodes are asked", str(asked))
            check(all(n["read_bytes_per_second"] > 0 and n["compute_bytes_per_second"] > 0 and n["round_trip_ms"] > 0 for n in asked),
                  "rates are measured", str(asked))
            self.run(plan, "a plan from nodes")
            text = self.shoal.ok("plan", self.container, "--nodes", addresses(nodes), "--copies", 2, "--explain").text
            check(all(word in text for word in (asked[0]["name"], "tokens/s predicted", "after the worst single death", "round trip")),
                  "a table for people", text)
        finally:
            for node in nodes:
                node.end()

    def refusals(self):
        plan = ("plan", self.container)
        self.shoal.refused((*plan, "--copies", 2), 2, "--nodes")
        self.shoal.refused((*plan, "--nodes", "nonsense"), 2, "--nodes", "HOST:PORT")
        self.shoal.refused((*plan, "--nodes", "192.0.2.1:7071"), 2, "--insecure")
        (nobody,) = free_addresses(1)
        self.shoal.refused((*plan, "--nodes", nobody), 1, f"node at {nobody}")
        with nodes_of(self.node, [self.container]) as nodes:
            self.shoal.refused((*plan, "--nodes", addresses(nodes)), 1, nodes[0].address, "read_bytes_per_second is not measured")
        lacking = spec_node("a", "", 1e6)
        del lacking["link_bytes_per_second"]
        self.shoal.refused((*plan, "--nodes", self.spec("lacking.json", [lacking])), 1, "lacking.json: node a", "link_bytes_per_second")
        small = self.spec("small.json", [spec_node("a", "", 1e6, free_disk_bytes=1000)])
        self.shoal.refused((*plan, "--nodes", small), 1, "node a would store", "has 1000 bytes of disk free")
        good = self.spec("good.json", [spec_node("a", "", 1e6)])
        self.shoal.refused((*plan, "--nodes", good, "--ctx", 100), 2, "--ctx")
        self.shoal.refused((*plan, "--nodes", good, "--out", good), 1, "is no plan and is not overwritten")


def main():
    program, node_program, container = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        planning = Planning(Shoal(program), node_program, container, work)
        planning.from_a_file()
        planning.own()
        planning.from_nodes()
        planning.refusals()
    finish()


if __name__ == "__main__":
    main()
