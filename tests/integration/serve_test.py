#!/usr/bin/env python3
"""A resident coordinator and the commands that speak to it, over real shoal-node processes: status, drain, plan, drills, and
fifty kills in a row.

    serve_test.py SHOAL SHOAL_NODE CONTAINER
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from shoal_program import Program, Shoal, check, finish

KILLS = 50


def member(name, units, copies=None, address=""):
    def piece(u):
        return [{"units": list(u), "experts": [0, 32]}] if u else []
    return {"name": name, "address": address, "slices": piece(units), "copies": piece(copies)}


class Cluster:
    """Three nodes, each unit on two of them, and a coordinator that holds nothing itself."""

    MEMBERS = [("a", (0, 3), (5, 8)), ("b", (3, 5), (0, 3)), ("c", (5, 8), (3, 5))]

    def __init__(self, shoal, node_program, container, work, stack):
        self.shoal, self.node_program, self.container, self.work, self.stack = shoal, node_program, container, work, stack
        self.identity = shoal.ok("inspect", container, "--json").json["identity"]
        plan = self.write_plan("parts", 1, [member(*m) for m in self.MEMBERS])
        self.shoal.ok("shard", container, "--plan", plan, "--out", os.path.join(work, "parts"))
        self.nodes = {}
        for name, _, _ in self.MEMBERS:
            self.start(name)
        self.plan = self.write_plan("pool", 1, self.members())
        self.serve = Program(shoal.program, "serve", container, "--nodes", self.plan, "--listen", "127.0.0.1:0", "--pool-alone", "--json")
        stack.callback(self.serve.end)

    def write_plan(self, name, epoch, nodes):
        path = os.path.join(self.work, f"{name}.json")
        with open(path, "w") as file:
            json.dump({"format": "shoal-pool-plan", "version": 1, "identity": self.identity, "epoch": epoch, "nodes": nodes}, file)
        return path

    def members(self):
        return [member(name, units, copies, self.nodes[name].address) for name, units, copies in self.MEMBERS]

    def start(self, name, *args):
        """Starts a node, where it was before where it was anywhere."""
        address = self.nodes[name].address if name in self.nodes else "127.0.0.1:0"
        drill = args or ["--allow-drill"]
        # With the slowest kernels, so that a thousand times the time of such small experts is beyond every deadline.
        self.nodes[name] = Program(self.node_program, os.path.join(self.work, "parts", name), "--listen", address, "--name", name, "--no-measure",
                                   "--kernels", "scalar", "--json", *drill)
        self.stack.callback(self.nodes[name].end)

    def shoal_node_floor(self, name):
        refused = Shoal(self.node_program).run(os.path.join(self.work, "parts", name), "--listen", "127.0.0.1:0", "--budget", "1MiB")
        check(refused.status == 3, "a node's budget below the floor is refused", refused.error)
        return int(refused.error.split("at least ")[1].split()[0])

    def run(self, *args):
        return self.shoal.run("cluster", *args, "--at", self.serve.address, "--json")

    def status(self):
        result = self.run("status", "--interval", 10)
        if result.status != 0:
            raise RuntimeError(f"status: {result.error}")
        return result.json

    def node(self, name):
        return next(node for node in self.status()["nodes"] if node["name"] == name)

    def wait_for(self, name, *states):
        deadline = time.monotonic() + 60
        while self.node(name)["state"] not in states:
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {name} is {self.node(name)}, not {states}")
            time.sleep(0.05)

    def drill(self, *args, tokens=40):
        result = self.run("drill", *args, "--tokens", tokens)
        label = " ".join(map(str, args))
        check(result.status == 0, f"drill {label}: exit code 0", f"{result.status}: {result.error}")
        report = result.json
        check(report["same_tokens"] and report["same_logits"], f"drill {label}: the same tokens, and the same logits to the bit", str(report))
        return report


def statuses(cluster):
    status = cluster.status()
    check(status["identity"] == cluster.identity and status["epoch"] == 1 and not status["stands_in"], "status: which model and plan", str(status))
    check([node["name"] for node in status["nodes"]] == ["a", "b", "c"], "status: all nodes in the plan's order")
    check(all(node["state"] == "live" for node in status["nodes"]), "status: all live")
    check(status["nodes"][0]["computes"] == [{"units": [0, 3], "experts": [0, 32]}] and len(status["nodes"][0]["stored"]) == 2, "status: what a node computes and stores", str(status["nodes"][0]))
    text = cluster.shoal.run("cluster", "status", "--interval", 10, "--at", cluster.serve.address)
    check(text.status == 0 and text.text.count("live") == 3 and "0-2" in text.text, "status: a table", text.text)
    nobody = cluster.shoal.run("cluster", "status", "--at", "127.0.0.1:1")
    check(nobody.status == 1 and "127.0.0.1:1" in nobody.error, "status: nobody there is said with the address", nobody.error)
    beyond = cluster.shoal.run("cluster", "status", "--at", "10.0.0.1:7070")
    check(beyond.status == 2 and "--insecure" in beyond.error, "status: beyond this machine needs --insecure", beyond.error)
    check(cluster.run("plan").json["nodes"] == json.load(open(cluster.plan))["nodes"], "plan: the one in force")


def drills(cluster):
    report = cluster.drill("kill", "b", tokens=200)
    check(report["struck_before_token"] == 50, "drill: struck after a quarter", str(report))
    check(cluster.node("b")["state"] == "lost" and cluster.node("b")["losses"] == 1, "drill: the node is lost", str(cluster.node("b")))
    again = cluster.run("drill", "kill", "b", "--tokens", 8)
    check(again.status == 1 and "lost already" in again.error, "drill: not of a node that is dead", again.error)
    cluster.nodes["b"].end()
    cluster.start("b")
    cluster.wait_for("b", "live")
    before = cluster.node("b")["requests"]
    cluster.drill("slow", "a", "--factor", 1000, "--seconds", 4)
    check(cluster.node("a")["hedges"] > 0, "drill: a slow node is hedged", str(cluster.node("a")))
    check(cluster.node("b")["requests"] > before, "drill: a node that came back works again")
    cluster.wait_for("a", "live")
    # With the smallest cache there is, so that it reads in every layer.
    floor = cluster.shoal_node_floor("c")
    cluster.nodes["c"].end()
    cluster.start("c", "--allow-drill", "--budget", floor)
    cluster.wait_for("c", "live")
    cluster.drill("corrupt", "c", "--records", 64)
    check(cluster.node("c")["failures"] > 0, "drill: damaged records are noticed and counted", str(cluster.node("c")))
    status = cluster.status()
    working = status["nodes"][1]
    shares = [working[f"{share}_share"] for share in ("kernel", "disk", "queue", "network")]
    check(all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 1e-6, "status: shares of a layer", str(working))
    check(0 < working["layer_p50_ms"] <= working["layer_p95_ms"], "status: latencies of a layer", str(working))
    check(working["expert_bytes"] > 0 and 0 <= working["hit_rate"] <= 1, "status: what was read", str(working))


def interrupted_start(cluster):
    """Nodes that do not answer are waited for; nobody has to sit through that."""
    process = subprocess.Popen([cluster.shoal.program, "serve", cluster.container, "--nodes", "127.0.0.1:1", "--listen", "127.0.0.1:0"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    check(process.wait(timeout=60) == 130, "serve: Ctrl-C ends it while it starts", str(process.returncode))


def refusals(cluster):
    planned = cluster.shoal.run("plan", cluster.container, "--nodes", cluster.serve.address)
    check(planned.status == 1 and cluster.serve.address in planned.error and "it is a coordinator" in planned.error,
          "refused: a pool is not planned of a coordinator", planned.error)
    for args, status, words in (
        (("plan", "--change-to", "missing.json"), 1, "--change-to: open missing.json"),
        (("drill", "kill", "z"), 1, "no node z"),
        (("drill", "maim", "a"), 2, "kill, slow and corrupt"),
        (("drill", "kill", "a", "--tokens", 4), 2, "--tokens"),
        (("drill", "slow", "a", "--tokens", 4096), 1, "--ctx"),
        (("drain", "z"), 1, "a, b, c"),
        (("plan", "--change-to", cluster.plan), 1, "epoch"),
    ):
        result = cluster.run(*args)
        check(result.status == status and words in result.error, f"refused: {' '.join(map(str, args[:3]))}", f"{result.status}: {result.error}")
    cluster.nodes["c"].end()
    cluster.start("c", "--max-rows", 64)
    cluster.wait_for("c", "live")
    result = cluster.run("drill", "kill", "c", "--tokens", 8)
    check(result.status == 1 and "--allow-drill" in result.error, "refused: a node that allows no drills", result.error)
    cluster.nodes["c"].end()
    cluster.start("c")
    cluster.wait_for("c", "live")
    twice = cluster.shoal.run("serve", cluster.container, "--listen", cluster.serve.address)
    check(twice.status == 1 and cluster.serve.address in twice.error, "refused: a port in use", twice.error)


def drain(cluster):
    check(cluster.run("drain", "a").status == 0 and cluster.node("a")["state"] == "drained", "drain: a node is drained")
    before = cluster.node("a")["requests"]
    cluster.drill("slow", "b", "--factor", 2, "--seconds", 1, tokens=8)
    check(cluster.node("a")["requests"] == before, "drain: it gets nothing more")
    result = cluster.run("drain", "b")
    check(result.status == 1 and "node b alone" in result.error, "drain: not the last holder of anything", result.error)
    check(cluster.run("drain", "a", "--undo").status == 0 and cluster.node("a")["state"] == "live", "drain: undone")


def change_plan(cluster):
    """A fourth machine: filled from the coordinator while the others answer, then everyone goes over to the next plan in mid-answer."""
    new = Program(cluster.node_program, os.path.join(cluster.work, "d"), "--listen", "127.0.0.1:0", "--name", "d", "--no-measure", "--json")
    cluster.stack.callback(new.end)
    nodes = [member("a", (0, 2), None, cluster.nodes["a"].address), member("b", (3, 5), (0, 3), cluster.nodes["b"].address),
             member("c", (5, 8), (3, 5), cluster.nodes["c"].address), member("d", (2, 3), (5, 8), new.address)]
    plan = cluster.write_plan("four", 2, nodes)
    early = cluster.run("plan", "--change-to", plan)
    at_node = cluster.shoal.run("cluster", "status", "--at", new.address)
    check(at_node.status == 1 and "is not `shoal serve`" in at_node.error, "status: a node is no coordinator", at_node.error)
    check(early.status == 1 and "node d" in early.error and cluster.status()["epoch"] == 1, "plan: not before the new node has its units", early.error)
    answer = subprocess.Popen([cluster.shoal.program, "cluster", "drill", "slow", "a", "--factor", "2", "--tokens", "600", "--at", cluster.serve.address, "--json"],
                              stdout=subprocess.PIPE)
    filled = cluster.shoal.ok("fill", cluster.container, "--plan", plan, "--from", cluster.serve.address, "--json")
    check(next(node for node in filled.json["nodes"] if node["name"] == "d")["bank_bytes"] > 0, "fill: from the coordinator", filled.text)
    check(json.loads(new.process.stdout.readline())["listening_on"] == new.address, "fill: the node serves where it was")
    changed = cluster.run("plan", "--change-to", plan)
    check(changed.status == 0 and cluster.status()["epoch"] == 2, "plan: the next one is in force", changed.error)
    check(answer.poll() is None, "plan: in mid-answer")
    report = json.loads(answer.communicate()[0])
    check(report["same_tokens"] and report["same_logits"], "plan: the answer goes on with the same bits", str(report))
    check(cluster.node("d")["requests"] > 0, "plan: the new node works", str(cluster.node("d")))
    back = cluster.write_plan("back", 3, cluster.members())
    check(cluster.run("plan", "--change-to", back).status == 0, "plan: and back")
    crowd = [member(f"n{i}", (i % 8, i % 8 + 1) if i < 8 else None, (0, 1) if i >= 8 else None, f"127.0.0.1:{i + 1}") for i in range(9)]
    many = cluster.run("plan", "--change-to", cluster.write_plan("many", 4, crowd))
    check(many.status == 1 and "planned for 8" in many.error, "plan: no more nodes than memory was planned for", many.error)


def soak(cluster):
    """Kill after kill: every answer is the same, and the coordinator keeps its size."""
    measured = None
    for i in range(KILLS):
        name = "abc"[i % 3]
        cluster.wait_for(name, "live", "suspect")
        result = cluster.run("drill", "kill", name, "--tokens", 8)
        same = result.status == 0 and result.json["same_tokens"] and result.json["same_logits"]
        if not same:
            check(False, f"soak: kill {i} of {name}", f"{result.status}: {result.error} {result.out!r}")
        cluster.nodes[name].end()
        cluster.start(name)
        if i == KILLS // 5:
            cluster.wait_for(name, "live", "suspect")
            measured = (cluster.serve.descriptors(), cluster.serve.resident_bytes())
    cluster.wait_for("abc"[(KILLS - 1) % 3], "live", "suspect")
    descriptors, resident = cluster.serve.descriptors(), cluster.serve.resident_bytes()
    check(True, f"soak: {KILLS} kills, {KILLS} answers with the same bits")
    check(descriptors <= measured[0] + 2, "soak: no descriptor is lost", f"{measured[0]} then {descriptors}")
    check(resident <= measured[1] + (4 << 20), "soak: no memory is lost", f"{measured[1]} then {resident}")


def idle(cluster):
    time.sleep(1)
    programs = [cluster.serve, *cluster.nodes.values()]
    before = [program.processor_seconds() for program in programs]
    seconds = 4
    time.sleep(seconds)
    for program, start in zip(programs, before):
        spent = program.processor_seconds() - start
        # A tick of the kernel's clock is already 0.25 %.
        check(spent <= 0.01 * seconds + 0.01, f"idle: {os.path.basename(program.command[0])} uses next to no processor", f"{spent} s of {seconds}")


def main():
    shoal, node_program, container = Shoal(sys.argv[1]), sys.argv[2], sys.argv[3]
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        cluster = Cluster(shoal, node_program, container, work, stack)
        statuses(cluster)
        idle(cluster)
        drills(cluster)
        interrupted_start(cluster)
        refusals(cluster)
        drain(cluster)
        change_plan(cluster)
        soak(cluster)
        cluster.serve.process.send_signal(signal.SIGTERM)
        check(cluster.serve.process.wait(timeout=30) == 0, "SIGTERM ends the coordinator with 0")
    finish()


if __name__ == "__main__":
    main()
