#!/usr/bin/env python3
"""`shoal fill`: nodes that start empty fetch their parts from a container and from each other, are killed, lose their sources, meet damaged
ones and full disks, and end with the bytes that `shoal shard` makes.

    fill_test.py SHOAL SHOAL_NODE CONTAINER CHECKPOINT
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from plan_pool_test import free_addresses
from pool_test import GENERATE, addresses, member, piece
from shard_kill_test import banks, read_tree
from shoal_program import Shoal, check, finish, limit_files

DEADLINE_S = 60


class Node:
    """A shoal-node process from its first line on, empty or not."""

    def __init__(self, program, directory, *args, listen="127.0.0.1:0", before=None):
        self.directory = directory
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, directory, "--listen", listen, "--json", *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=self.errors, preexec_fn=before)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"shoal-node {directory} ended with {self.process.wait()}: {self.said()}")
        self.ready = json.loads(line)
        self.address, self.name = self.ready["listening_on"], self.ready["name"]

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(DEADLINE_S)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Filling:
    def __init__(self, shoal, node_program, container, checkpoint, work):
        self.shoal, self.program, self.container, self.checkpoint, self.work = shoal, node_program, container, checkpoint, work
        self.identity = shoal.ok("inspect", container, "--json").json["identity"]
        self.answer = shoal.ok("run", container, *GENERATE).json["ids"]
        self.nodes = []

    def path(self, name):
        return os.path.join(self.work, name)

    def node(self, directory, *args, **more):
        """A node without measurements, which ends with the test."""
        self.nodes.append(Node(self.program, directory, "--no-measure", *args, **more))
        return self.nodes[-1]

    def end(self):
        for node in self.nodes:
            node.end()
        self.nodes = []

    def plan(self, name, nodes):
        path = self.path(f"{name}.json")
        with open(path, "w") as file:
            json.dump({"format": "shoal-pool-plan", "version": 1, "identity": self.identity, "epoch": 1, "nodes": nodes}, file)
        return path

    def equals_shard(self, plan, nodes, label):
        """The directories of these nodes have the bytes that `shoal shard` makes."""
        out = self.path(f"reference-{label.replace(' ', '-')}")
        self.shoal.ok("shard", self.container, "--plan", plan, "--out", out)
        for node in nodes:
            check(read_tree(node.directory) == read_tree(os.path.join(out, node.name)), f"{label}: {node.name} has the bytes of `shoal shard`")
            check(not os.path.exists(node.directory + ".partial"), f"{label}: nothing is left beside {node.name}")

    def run(self, plan, label):
        result = self.shoal.ok("run", self.container, *GENERATE, "--nodes", plan, "--pool-alone").json
        check(result["ids"] == self.answer, f"{label}: the tokens of one machine")
        check(all(node["requests"] > 0 for node in result["nodes"]), f"{label}: every node computed", str(result["nodes"]))

    def from_the_container_then_from_peers(self):
        a, b = (self.node(self.path(name), "--name", name) for name in ("a", "b"))
        check(a.ready["empty"] is True and a.ready["free_disk_bytes"] > 0, "an empty node says so", str(a.ready))
        check(not os.path.exists(a.directory) and not os.path.exists(a.directory + ".partial"), "and makes nothing before it is filled")
        cut = [{**member("a", [piece((0, 3))], [piece((5, 8))]), "address": a.address}, {**member("b", [piece((3, 8))]), "address": b.address}]
        plan = self.plan("two", cut)
        self.shoal.refused(("run", self.container, *GENERATE, "--nodes", plan, "--pool-alone", "--node-wait", 1), 1, "is empty")
        report = self.shoal.ok("fill", self.container, "--plan", plan, "--json").json
        check([node["already_filled"] for node in report["nodes"]] == [False, False] and all(node["bank_bytes"] > 0 for node in report["nodes"]),
              "fill reports both nodes", str(report))
        check(all(len(node["sources"]) == 1 for node in report["nodes"]), "from DIR, which is all that holds anything", str(report))
        self.equals_shard(plan, [a, b], "from the container")
        self.run(plan, "from the container")
        again = self.shoal.ok("fill", self.container, "--plan", plan, "--json").json
        check(all(node["already_filled"] for node in again["nodes"]), "what is filled is left as it is", str(again))
        text = self.shoal.ok("fill", self.container, "--plan", plan).text
        check("filled already" in text, "and said so to people", text)

        c = self.node(self.path("c"), "--name", "c")
        whole = self.plan("three", [{**member("c", [piece((0, 8), (0, 20)), piece((0, 8), (20, 32))]), "address": c.address}])
        self.shoal.refused(("fill", self.container, "--plan", whole, "--from", a.address), 1, "no source", "units 3-4", a.address)
        self.shoal.ok("fill", self.container, "--plan", whole, "--from", f"{a.address},{b.address}")
        self.equals_shard(whole, [c], "from peers that hold parts")
        self.run(whole, "from peers that hold parts")
        c.signal(signal.SIGTERM)
        check(c.wait() == 0, "a node that was filled drains on SIGTERM", c.said())

    def many(self, name, address=""):
        """A node with every unit in many slices, so that it has many banks."""
        return {**member(name, [piece((0, 8), (first, first + 4)) for first in range(0, 32, 4)]), "address": address}

    def while_filling(self, node, fill, act, least=1):
        """Runs `shoal fill` and, when the node has made some more banks, acts once. The exit status, and how many were there."""
        begin = len(banks(node.directory + ".partial"))
        process = subprocess.Popen([self.shoal.program, *map(str, fill)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None and len(banks(node.directory + ".partial")) < begin + least and time.monotonic() < deadline:
            time.sleep(0.0005)  # between two looks at the condition
        act(process)
        out, error = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out.decode() + error.decode()

    def killed_and_gone_on(self):
        directory = self.path("killed")
        kept = []
        written_again = []
        count = 0
        while count < 40:
            node = self.node(directory, "--name", "killed")
            plan = self.plan("killed", [self.many("killed", node.address)])
            before = banks(directory + ".partial")
            status, said = self.while_filling(node, ("fill", self.container, "--plan", plan, "--json"), lambda _, node=node: node.process.kill(), 8)
            if status == 0:
                break
            node.wait()
            check(status == 1 and "killed" in said, "fill says that the node is lost", f"{status}: {said}")
            count += 1
            after = banks(directory + ".partial")
            written_again += [path for path in before if after.get(path) != before[path]]
            kept.append(len(after))
        if count == 0 or os.path.exists(directory):
            node = self.node(directory, "--name", "killed")
        node = self.nodes[-1]
        plan = self.plan("killed", [self.many("killed", node.address)])
        check(count >= 1 and kept[-1] > 0, f"the node was killed {count} times in the middle", str(kept))
        check(not written_again, "a finished bank is not written again", str(written_again))
        self.shoal.ok("fill", self.container, "--plan", plan)
        self.equals_shard(plan, [node], "killed and gone on")
        self.run(plan, "killed and gone on")

    def resumed(self):
        """Ctrl-C ends the command, the node keeps what it has, and the next run says how much."""
        node = self.node(self.path("resumed"), "--name", "resumed")
        plan = self.plan("resumed", [self.many("resumed", node.address)])
        status, said = self.while_filling(node, ("fill", self.container, "--plan", plan), lambda process: process.send_signal(signal.SIGINT), 4)
        check(status == 130 and "goes on from there" in said, "Ctrl-C stops it", f"{status}: {said}")
        total = 7 * 8
        report = None
        deadline = time.monotonic() + DEADLINE_S
        while report is None and time.monotonic() < deadline:
            # The node may still be at the end of the call that was given up.
            result = self.shoal.run("fill", self.container, "--plan", plan, "--json")
            report = result.json if result.status == 0 else None
        check(report is not None and 0 < report["nodes"][0]["bytes_kept"] < report["nodes"][0]["bank_bytes"],
              f"and the next run keeps what was finished, some of {total} banks", str(report))
        self.equals_shard(plan, [node], "resumed")

    def at_the_same_time(self):
        """A node that stands still does not hold up another."""
        slow, quick = (self.node(self.path(name), "--name", name) for name in ("slow", "quick"))
        plan = self.plan("both", [self.many("slow", slow.address), {**member("quick", [], [piece((0, 4))]), "address": quick.address}])
        finished = []

        def stop(_):
            slow.signal(signal.SIGSTOP)
            finished.append(os.path.exists(slow.directory))
            deadline = time.monotonic() + DEADLINE_S
            while not os.path.exists(quick.directory) and time.monotonic() < deadline:
                time.sleep(0.005)  # between two looks at the condition
            finished.append(os.path.exists(quick.directory))
            slow.signal(signal.SIGCONT)

        status, said = self.while_filling(slow, ("fill", self.container, "--plan", plan), stop)
        check(status == 0 and finished == [False, True], "nodes are filled at the same time", f"{status}: {said} {finished}")
        self.equals_shard(plan, [slow, quick], "at the same time")

    def slow_to_answer(self):
        """A machine that takes its time to accept a connection is waited for."""
        node = self.node(self.path("sleepy"), "--name", "sleepy")
        plan = self.plan("sleepy", [{**member("sleepy", [piece((0, 8))]), "address": node.address}])
        node.signal(signal.SIGSTOP)
        process = subprocess.Popen([self.shoal.program, "fill", self.container, "--plan", plan], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(1)  # so that it has long been asked
        node.signal(signal.SIGCONT)
        _, error = process.communicate(timeout=DEADLINE_S)
        check(process.returncode == 0, "a node that is slow to accept a connection is filled", error.decode())

    def one_fails(self):
        """The others are filled all the same."""
        small, good = self.node(self.path("little"), "--name", "little", before=limit_files(200_000)), self.node(self.path("good"), "--name", "good")
        plan = self.plan("one-fails", [{**member("little", [piece((0, 8))]), "address": small.address}, {**member("good", [], [piece((0, 4))]), "address": good.address}])
        self.shoal.refused(("fill", self.container, "--plan", plan), 1, "node little", "free some disk")
        self.equals_shard(plan, [good], "one fails")

    def loses_a_source(self):
        first, second = self.node(self.container), self.node(self.container)
        node = self.node(self.path("bereft"), "--name", "bereft")
        plan = self.plan("bereft", [self.many("bereft", node.address)])
        there = []

        def lose(_):
            node.signal(signal.SIGSTOP)
            there.append(len(banks(node.directory + ".partial")))
            first.process.kill()
            first.process.wait()
            node.signal(signal.SIGCONT)

        status, said = self.while_filling(node, ("fill", self.container, "--plan", plan, "--from", addresses([first, second])), lose)
        check(status == 0 and 0 < there[0] < 7 * 8, "a source is killed in the middle and another is asked", f"{status}: {said} {there}")
        check(f"source {first.address} is asked for nothing more" in node.said(), "the node says so", node.said())
        self.equals_shard(plan, [node], "a source was lost")

    def damaged_source(self):
        damaged = self.path("damaged")
        shutil.copytree(self.container, damaged)
        layout = self.shoal.ok("inspect", self.container, "--json").json
        bank = os.path.join(damaged, "experts", "layer-00003.bank")
        record = os.path.getsize(bank) // layout["num_experts"]
        with open(bank, "r+b") as file:
            file.seek(9 * record + 100)
            file.write(b"damage")
        bad, good = self.node(damaged), self.node(self.container)
        node = self.node(self.path("careful"), "--name", "careful")
        plan = self.plan("careful", [{**member("careful", [piece((0, 8))]), "address": node.address}])
        self.shoal.refused(("fill", self.container, "--plan", plan, "--from", bad.address), 4, "careful", bad.address, "layer 3 expert 9 unit 0")
        self.shoal.ok("fill", self.container, "--plan", plan, "--from", addresses([bad, good]))
        self.equals_shard(plan, [node], "a damaged source")

    def full_disk(self):
        directory = self.path("full")
        node = self.node(directory, "--name", "full", before=limit_files(200_000))
        plan = self.plan("full", [self.many("full", node.address)])
        fits = self.plan("full-bank", [{**member("full", [piece((0, 8))]), "address": node.address}])
        self.shoal.refused(("fill", self.container, "--plan", fits), 1, "layer-00001.bank", "free some disk", "what is finished is kept")
        node.end()
        node = self.node(directory, "--name", "full")
        plan = self.plan("full-bank", [{**member("full", [piece((0, 8))]), "address": node.address}])
        self.shoal.ok("fill", self.container, "--plan", plan)
        self.equals_shard(plan, [node], "a full disk")
        self.small_file_system()

    def small_file_system(self):
        """Where the test may mount one."""
        mount = self.path("small")
        os.mkdir(mount)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mount], capture_output=True).returncode != 0:
            return
        try:
            node = self.node(os.path.join(mount, "part"), "--name", "part")
            plan = self.plan("part", [{**member("part", [piece((0, 8))]), "address": node.address}])
            self.shoal.refused(("fill", self.container, "--plan", plan), 1, "needs another", "bytes", "free")
            check(os.listdir(mount) == [], "nothing is written where the space is too small", str(os.listdir(mount)))
            node.end()
            self.does_not_start(1, mount, "where a file system is mounted")
        finally:
            subprocess.run(["umount", mount], check=True)

    def does_not_start(self, status, directory, word, named=True):
        name = ["--name", "x"] if named else []
        done = subprocess.run([self.program, directory, "--listen", "127.0.0.1:0", "--no-measure", *name], capture_output=True, text=True, timeout=DEADLINE_S)
        check(done.returncode == status and word in done.stderr, f"`shoal-node {directory.rsplit('/', 1)[-1]}` is refused with {status}",
              f"{done.returncode}: {done.stderr}")

    def refusals(self):
        other = self.path("other")
        self.shoal.ok("convert", self.checkpoint, other, "--experts", "f32", "--trunk", "f32")
        foreign = self.node(other)
        node = self.node(self.path("wanted"), "--name", "wanted")
        plan = self.plan("wanted", [{**member("wanted", [piece((0, 8))]), "address": node.address}])
        fill = ("fill", self.container, "--plan")
        self.shoal.refused((*fill, plan, "--from", foreign.address), 1, foreign.address, "terms.container.identity differs")
        renamed = self.plan("renamed", [{**member("attic", [piece((0, 8))]), "address": node.address}])
        self.shoal.refused((*fill, renamed), 1, "calls itself wanted", "attic")
        self.shoal.refused(("fill", other, "--plan", plan), 1, "identity")
        elsewhere = self.plan("elsewhere", [{**member("wanted", [piece((0, 8))]), "address": foreign.address}])
        self.shoal.refused((*fill, elsewhere), 1, "terms.container.identity differs")
        partial = self.path("reference-from-the-container/a")
        part = self.node(partial)
        self.shoal.refused((*fill, self.plan("lacking", [{**member("a", [piece((0, 8))]), "address": part.address}])), 1, "is not empty and lacks units 3-4")
        (nobody,) = free_addresses(1)
        self.shoal.refused((*fill, self.plan("absent", [{**member("wanted", [piece((0, 8))]), "address": nobody}])), 1, f"node at {nobody}")
        self.shoal.refused(("fill", self.container), 2, "--plan FILE is missing")
        self.shoal.refused(("fill", self.container, "--plan", "missing.json"), 1, "--plan: open missing.json")
        self.shoal.refused((*fill, plan, "--from", "192.0.2.1:7071"), 2, "--insecure")
        self.shoal.refused((*fill, plan, "--listen", "0.0.0.0:0", "--insecure"), 2, "--listen")
        self.shoal.refused((*fill, plan, "--node", "roof"), 2, "roof")
        self.shoal.refused((*fill, self.plan("nowhere", [member("wanted", [piece((0, 8))])])), 2, "wanted has no address")
        node.signal(signal.SIGTERM)
        check(node.wait() == 0 and "holds nothing yet" in node.said(), "SIGTERM ends an empty node with 0", node.said())
        check(not os.path.exists(node.directory) and not os.path.exists(node.directory + ".partial"), "and nothing is left")
        self.does_not_start(2, self.path("nameless"), "--name", named=False)
        self.does_not_start(2, self.path("nowhere/at/all"), "nowhere/at")

    def planned_while_empty(self):
        """From nothing but measured disks to a pool that answers."""
        nodes = [Node(self.program, self.path(name), "--name", name) for name in ("p", "q")]
        self.nodes += nodes
        check(all(node.ready["read_bytes_per_second"] > 0 for node in nodes), "an empty node measures its disk", str([node.ready for node in nodes]))
        check(not any(name.startswith(".shoal") for name in os.listdir(self.work)), "and leaves no scratch file", str(os.listdir(self.work)))
        plan = self.path("planned.json")
        said = self.shoal.ok("plan", self.container, "--nodes", addresses(nodes), "--placement", "units", "--out", plan, "--json").json
        check(all(node["compute_assumed"] for node in said["best"]["nodes"]) and any("reads of 1 MiB of a scratch file" in line and "kernels were not measured" in line for line in said["warnings"]),
              "a plan of empty nodes says what it assumes", str(said))
        self.shoal.ok("fill", self.container, "--plan", plan)
        self.equals_shard(plan, nodes, "planned while empty")
        self.run(plan, "planned while empty")
        measured = self.shoal.ok("plan", self.container, "--nodes", addresses(nodes), "--json").json
        check(not any(node["compute_assumed"] for node in measured["best"]["nodes"]), "once filled they are measured", str(measured))


def main():
    program, node_program, container, checkpoint = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        filling = Filling(Shoal(program), node_program, container, checkpoint, work)
        for test in (filling.from_the_container_then_from_peers, filling.killed_and_gone_on, filling.resumed, filling.at_the_same_time,
                     filling.slow_to_answer, filling.one_fails, filling.loses_a_source,
                     filling.damaged_source, filling.full_disk, filling.refusals, filling.planned_while_empty):
            try:
                test()
            finally:
                filling.end()
    finish()


if __name__ == "__main__":
    main()
