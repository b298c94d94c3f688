#!/usr/bin/env python3
"""Pools of real shoal-node processes answer with the tokens and logits of one machine, whatever happens to the nodes.

    pool_test.py SHOAL SHOAL_NODE CONTAINER [CONTAINER_OF_ANOTHER_CODEC...]

Everything with the first container; with the others what depends on the codec.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from shoal_program import Shoal, check, finish

PROMPT = "1,77,301,5,1208,9,9,44"
TOKENS = 24
BYTES_OF_A_FEW_TOKENS = 12 * 7 * 192 * 8  # sums of 12 rows, those of the prompt among them, in 7 layers of 192 elements
GENERATE = ("--ids", PROMPT, "--max-tokens", TOKENS, "--ignore-eos", "--json")


class Node:
    """A shoal-node process that is ready. `inside` is the beginning of a command that runs it elsewhere."""

    def __init__(self, program, directory, *args, listen="127.0.0.1:0", measure=False, inside=(), log=subprocess.DEVNULL):
        measuring = [] if measure else ["--no-measure"]
        self.process = subprocess.Popen([*inside, program, directory, "--listen", listen, *measuring, "--json", *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"shoal-node {directory} ended with {self.process.wait()}")
        said = json.loads(line)
        self.address, self.name = said["listening_on"], said["name"]

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def nodes_of(program, directories, *args):
    nodes = []
    try:
        for directory in directories:
            nodes.append(Node(program, directory, *args))
        yield nodes
    finally:
        for node in nodes:
            node.end()


def addresses(nodes):
    return ",".join(node.address for node in nodes)


def shard(shoal, container, work, name, nodes):
    """Partitions of a plan; gives their directories."""
    identity = shoal.ok("inspect", container, "--json").json["identity"]
    plan = {"format": "shoal-pool-plan", "version": 1, "identity": identity, "epoch": 1, "nodes": nodes}
    path = os.path.join(work, f"{name}.json")
    with open(path, "w") as file:
        json.dump(plan, file)
    shoal.ok("shard", container, "--plan", path, "--out", os.path.join(work, name))
    return [os.path.join(work, name, node["name"]) for node in nodes]


def piece(units, experts=(0, 32)):
    return {"units": list(units), "experts": list(experts)}


def member(name, slices, copies=()):
    return {"name": name, "address": "", "slices": list(slices), "copies": list(copies)}


def logits(shoal, container, work, *args):
    path = os.path.join(work, "logits.npy")
    shoal.ok("eval", container, "--ids", PROMPT, "--dump-logits", path, *args)
    with open(path, "rb") as file:
        return file.read()


def sent_bytes(node):
    """What the node has sent over the connections that are open, by the kernel's count."""
    port = node.address.rsplit(":", 1)[1]
    said = subprocess.run(["ss", "-Htin", "state", "established", f"( sport = :{port} )"], capture_output=True, text=True, check=True, timeout=60)
    return sum(int(count) for count in re.findall(r"bytes_sent:([0-9]+)", said.stdout))


class Pools:
    def __init__(self, shoal, node_program, container, work):
        self.shoal, self.node, self.container, self.work = shoal, node_program, container, work
        self.answer = shoal.ok("run", container, *GENERATE).json["ids"]
        self.logits = logits(shoal, container, work)

    def run(self, nodes, *args):
        return self.shoal.ok("run", self.container, *GENERATE, "--nodes", addresses(nodes), "--pool-alone", *args).json

    def placements(self):
        for name, plan in (
            ("one node", [member("a", [piece((0, 8))])]),
            ("two unequal slices", [member("a", [piece((0, 3))]), member("b", [piece((3, 8))])]),
            ("three slices", [member("a", [piece((0, 1))]), member("b", [piece((1, 6))]), member("c", [piece((6, 8))])]),
            ("five slices", [member(f"n{i}", [piece((i, i + 1 if i < 4 else 8))]) for i in range(5)]),
            ("whole experts", [member("a", [piece((0, 8), (0, 20))]), member("b", [piece((0, 8), (20, 32))])]),
            ("copies in a chain", [member("a", [piece((0, 3))], [piece((5, 8))]), member("b", [piece((3, 5))], [piece((0, 3))]),
                                   member("c", [piece((5, 8))], [piece((3, 5))])]),
        ):
            directories = shard(self.shoal, self.container, self.work, name.replace(" ", "-"), plan)
            with nodes_of(self.node, directories) as nodes:
                result = self.run(nodes)
                check(result["ids"] == self.answer, f"{name}: the tokens of one machine")
                check(result["expert_reads"] == result["expert_misses"] > 0, f"{name}: one read a missed record", str(result))
                pool = ("--nodes", addresses(nodes), "--pool-alone")
                check(logits(self.shoal, self.container, self.work, *pool) == self.logits, f"{name}: the logits of one machine, to the bit")

    def instruction_sets(self):
        """Nodes with the kernels of different instruction sets."""
        refused = self.shoal.run("run", self.container, *GENERATE, "--kernels", "none")
        check(refused.status == 2 and "scalar" in refused.error, "kernels that there are not are refused, with those that there are", refused.error)
        kernels = refused.error.split("choose ")[1].strip(" .\n\"}").split(", ")
        check(kernels[0] == "scalar" and kernels[-1] == self.shoal.ok("run", self.container, *GENERATE).json["kernels"], "the best is the default", str(kernels))
        for kernel in kernels:
            alone = self.shoal.ok("run", self.container, *GENERATE, "--kernels", kernel).json
            check(alone["kernels"] == kernel and alone["ids"] == self.answer, f"one machine with {kernel}: the same tokens")
        bounds = [8 * i // len(kernels) for i in range(len(kernels) + 1)]
        plan = [member(kernel, [piece((bounds[i], bounds[i + 1]))]) for i, kernel in enumerate(kernels)]
        directories = shard(self.shoal, self.container, self.work, "instruction-sets", plan)
        with contextlib.ExitStack() as stack:
            nodes = [Node(self.node, directory, "--kernels", kernel) for kernel, directory in zip(kernels, directories)]
            for node in nodes:
                stack.callback(node.end)
            check(self.run(nodes)["ids"] == self.answer, f"a pool of {', '.join(kernels)}: the tokens of one machine")
            pool = ("--nodes", addresses(nodes), "--pool-alone")
            check(logits(self.shoal, self.container, self.work, *pool) == self.logits, "and the logits, to the bit")
            fast = logits(self.shoal, self.container, self.work, "--arithmetic", "fast")
            check(fast != self.logits, "fast arithmetic has other bits")
            check(logits(self.shoal, self.container, self.work, "--arithmetic", "fast", *pool) == fast, "which the same pool has too")
            check(self.run(nodes)["arithmetic"] == "exact", "and the next coordinator is asked what it wants")

    def deaths(self, label, hurt, *args):
        """Two nodes that hold everything; one is hurt in the middle of the answer."""
        with nodes_of(self.node, [self.container] * 2, *args) as nodes:
            def hurt_in_the_middle():
                deadline = time.monotonic() + 60
                while sent_bytes(nodes[0]) < BYTES_OF_A_FEW_TOKENS and time.monotonic() < deadline:
                    time.sleep(0.01)  # between two looks
                hurt(nodes[0])

            thread = threading.Thread(target=hurt_in_the_middle)
            thread.start()
            result = self.run(nodes)
            thread.join()
            check(result["ids"] == self.answer, f"{label}: the tokens of one machine")
            hurt_node = next(node for node in result["nodes"] if node["address"] == nodes[0].address)
            check(hurt_node["requests"] > 0 and hurt_node["losses"] + hurt_node["hedges"] > 0, f"{label}: in the middle of the answer", str(hurt_node))

    def budget(self):
        """Three nodes and the smallest budget there is: the system's own count of peak memory stays below it."""
        with nodes_of(self.node, [self.container] * 3) as nodes:
            refused = self.shoal.run("run", self.container, *GENERATE, "--nodes", addresses(nodes), "--budget", "1MiB")
            check(refused.status == 3 and "pool" in refused.error, "a budget below the floor is refused with the part of the pool", refused.error)
            floor = int(refused.error.split("Raise --budget to at least ")[1].split()[0])
            long_prompt = ",".join(str(i * 37 % 3840) for i in range(1500))
            result = self.shoal.ok("run", self.container, "--ids", long_prompt, "--max-tokens", 8, "--ignore-eos", "--json", "--nodes", addresses(nodes),
                                   "--budget", floor).json
            check(0 < result["peak_rss_bytes"] <= floor, f"peak of {result['peak_rss_bytes']} bytes is within the floor of {floor}")

    def rejoin(self):
        """Without a copy the answer waits for the node and goes on."""
        directories = shard(self.shoal, self.container, self.work, "rejoin", [member("a", [piece((0, 4))]), member("b", [piece((4, 8))])])
        with nodes_of(self.node, directories, "--allow-drill", "--drill-delay-ms", 20) as nodes:
            port = nodes[1].address

            def restart():
                nodes[1].end()
                nodes[1] = Node(self.node, directories[1], listen=port)

            timer = threading.Timer(0.5, restart)
            timer.start()
            result = self.run(nodes)
            timer.join()
            check(result["ids"] == self.answer, "a node that comes back: the tokens of one machine")
            nodes[1].end()
            self.shoal.refused(("run", self.container, *GENERATE, "--nodes", addresses(nodes), "--pool-alone", "--node-wait", 1), 1, "units 4-7", port)
            result = self.shoal.ok("run", self.container, *GENERATE, "--nodes", addresses(nodes)).json
            check(result["ids"] == self.answer, "the container's own banks stand in: the tokens of one machine")

    def refusals(self):
        first, second = shard(self.shoal, self.container, self.work, "refused",
                              [member("a", [piece((0, 4))]), member("b", [piece((4, 8))])])
        with nodes_of(self.node, [first, first, second]) as nodes:
            run = ("run", self.container, "--ids", PROMPT, "--pool-alone", "--nodes")
            self.shoal.refused((*run, addresses(nodes)), 1, "two nodes call themselves a", nodes[0].address, nodes[1].address)
            self.shoal.refused((*run, nodes[2].address), 1, "no node holds units 0-3 of experts 0-31")
        self.shoal.refused((*run, "nonsense.json"), 2, "--nodes", "no file nonsense.json")
        self.shoal.refused((*run, "host:"), 2, "--nodes", "HOST:PORT")
        self.shoal.refused((*run, ""), 2, "--nodes is empty")
        self.shoal.refused((*run, "127.0.0.1:0"), 2, "--nodes", "127.0.0.1:0", "port 0", "listening on")
        self.shoal.refused((*run, "127.0.0.1:7101", "--tls", ""), 2, "--tls is empty")
        self.shoal.refused((*run, "192.0.2.1:7071"), 2, "--insecure")
        self.shoal.refused(("run", self.container, "--ids", PROMPT, "--pool-alone"), 2, "--nodes")


def main():
    program, node_program, container, *others = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        pools = Pools(Shoal(program), node_program, container, work)
        pools.placements()
        pools.deaths("a node is killed", lambda node: node.signal(signal.SIGKILL), "--allow-drill", "--drill-delay-ms", 5)
        pools.deaths("a node is stopped", lambda node: node.signal(signal.SIGSTOP), "--allow-drill", "--drill-delay-ms", 5)
        pools.deaths("a node drains", lambda node: node.signal(signal.SIGTERM), "--allow-drill", "--drill-delay-ms", 5)
        pools.budget()
        pools.instruction_sets()
        pools.rejoin()
        pools.refusals()
    for other in others:
        with tempfile.TemporaryDirectory() as work:
            Pools(Shoal(program), node_program, other, work).instruction_sets()
    finish()


if __name__ == "__main__":
    main()
