#!/usr/bin/env python3
"""A pool of several hosts: a coordinator and three nodes, each in a network namespace of its own, joined by a switch. Links are
slow, and are cut without a word: no connection is closed, nothing arrives any more. The bits are those of one machine.

    hosts_test.py SHOAL SHOAL_NODE CONTAINER

Everything is inside of namespaces that end with this process, also when that is killed; the machine's own network is not
touched. Where the system grants no namespaces the test ends with 77, which CTest calls skipped.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from pool_test import GENERATE, Node, logits, member, piece, shard
from shoal_program import Shoal, check, finish

SKIPPED = 77
INSIDE = "SHOAL_TEST_INSIDE"  # set in the namespaces
DEADLINE_S = 60
HOSTS = ("a", "b", "c")
ADDRESSES = {"home": "10.77.0.1", "a": "10.77.0.2", "b": "10.77.0.3", "c": "10.77.0.4"}
NOBODY = "10.77.0.99:7071"  # what is sent there is lost
SLOW_BYTES_PER_SECOND = 4_000_000
SLOW_BURST_BYTES = 65536
DELAY_MS = 50
BYTES_OF_A_SUM = 8 * 192  # of a row: the model's hidden size
MOE_LAYERS = 7


def skip(reason):
    print(f"SKIPPED: {reason}", flush=True)
    sys.exit(SKIPPED)


def begin_inside():
    """Starts this program again in new namespaces: of networks, mounts and processes, so that whatever is made there goes with it."""
    unshare = ["unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True, timeout=DEADLINE_S)
    if tried.returncode != 0:
        skip(f"this process may not make network namespaces: {tried.stderr.strip()}")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def system(*command):
    """Runs a command of the system; gives what it says where it fails, else nothing."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    return "" if done.returncode == 0 else f"`{' '.join(command)}`: {done.stderr.strip() or done.returncode}"


def must(*command):
    said = system(*command)
    if said:
        raise RuntimeError(said)


def inside(host):
    return ("nsenter", f"--net=/run/netns/{host}")


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.01)


class Network:
    """The coordinator is in the namespace of this process."""

    def __init__(self):
        try:
            must("mount", "-t", "tmpfs", "none", "/run")  # what `ip netns` writes there is of no interest to others
            must("ip", "netns", "add", "switch")
            must("ip", "-n", "switch", "link", "add", "name", "bridge", "type", "bridge")
            must("ip", "-n", "switch", "link", "add", "name", "probe", "type", "veth")
        except (RuntimeError, OSError) as error:
            skip(f"the network cannot be made: {error}")
        # What fails from here on is a mistake of this test's.
        must("ip", "-n", "switch", "link", "del", "dev", "probe")
        must("ip", "-n", "switch", "link", "set", "dev", "bridge", "up")
        must("ip", "link", "set", "dev", "lo", "up")
        self._plug_in("home", ())
        for host in HOSTS:
            must("ip", "netns", "add", host)
            must("ip", "-n", host, "link", "set", "dev", "lo", "up")
            self._plug_in(host, ("-n", host))
        # Nobody has this card, so that no answer comes, not even that there is none.
        must("ip", "neigh", "add", NOBODY.split(":")[0], "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")

    def _plug_in(self, host, there):
        must("ip", "-n", "switch", "link", "add", "name", host, "type", "veth", "peer", "name", f"{host}-card")
        must("ip", "-n", "switch", "link", "set", "dev", f"{host}-card", "netns", str(os.getpid()) if not there else host)
        must("ip", *there, "link", "set", "dev", f"{host}-card", "name", "eth0")
        must("ip", *there, "addr", "add", f"{ADDRESSES[host]}/24", "dev", "eth0")
        must("ip", *there, "link", "set", "dev", "eth0", "up")
        must("ip", "-n", "switch", "link", "set", "dev", host, "master", "bridge")
        self.cut(host, False)

    def cut(self, host, down=True):
        """Pulls the cable out of the switch, or puts it in again."""
        must("ip", "-n", "switch", "link", "set", "dev", host, "down" if down else "up")

    def sent_bytes(self, host):
        """What the host has sent so far."""
        said = subprocess.run(["ip", "-n", "switch", "-s", "-j", "link", "show", "dev", host], capture_output=True, check=True, timeout=DEADLINE_S)
        return json.loads(said.stdout)[0]["stats64"]["rx"]["bytes"]

    def slow_down(self, host):
        """Both ways; gives why it cannot be done."""
        shape = ("root", "tbf", "rate", f"{SLOW_BYTES_PER_SECOND * 8}bit", "burst", str(SLOW_BURST_BYTES), "latency", "200ms")
        return (system("tc", "-n", host, "qdisc", "add", "dev", "eth0", *shape)
                or system("tc", "-n", "switch", "qdisc", "add", "dev", host, *shape))

    def delay(self, host):
        return system("tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{DELAY_MS}ms")


def begins_to_connect(host):
    """Whether there is a connection from here to the host that is begun and not answered."""
    address = "".join(f"{int(part):02X}" for part in reversed(ADDRESSES[host].split(".")))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # gRPC's sockets take both kinds of addresses
        with open(table) as file:
            fields = [line.split() for line in file.readlines()[1:]]
        if any(f[2].split(":")[0].endswith(address) and f[3] == "02" for f in fields):
            return True
    return False


class Hosts:
    def __init__(self, shoal, node_program, container, work, network):
        self.shoal, self.node_program, self.container, self.work, self.network = shoal, node_program, container, work, network
        self.answer = shoal.ok("run", container, *GENERATE).json["ids"]
        self.identity = shoal.ok("inspect", container, "--json").json["identity"]
        chain = [member("a", [piece((0, 3))], [piece((5, 8))]), member("b", [piece((3, 5))], [piece((0, 3))]),
                 member("c", [piece((5, 8))], [piece((3, 5))])]
        self.chain = dict(zip(HOSTS, shard(shoal, container, work, "chain", chain)))
        self.chain_plan = self.plan("chain-at", chain)
        parts = [member("a", [piece((0, 3))]), member("b", [piece((3, 5))]), member("c", [piece((5, 8))])]
        self.parts = dict(zip(HOSTS, shard(shoal, container, work, "parts", parts)))

    def plan(self, name, members):
        path = os.path.join(self.work, f"{name}.json")
        nodes = [{**m, "address": f"{ADDRESSES[m['name']]}:7071"} for m in members]
        with open(path, "w") as file:
            json.dump({"format": "shoal-pool-plan", "version": 1, "identity": self.identity, "epoch": 1, "nodes": nodes}, file)
        return path

    def log(self, host):
        return os.path.join(self.work, f"{host}.log")

    @contextlib.contextmanager
    def nodes(self, directories, *args, **options):
        """A node on each host, of its directory."""
        nodes = {}
        try:
            for host, directory in directories.items():
                with open(self.log(host), "w") as log:
                    nodes[host] = Node(self.node_program, directory, "--name", host, "--insecure", *args, listen=f"{ADDRESSES[host]}:7071",
                                       inside=inside(host), log=log, **options)
            yield nodes
        finally:
            for node in nodes.values():
                node.end()

    def start(self, *args):
        return subprocess.Popen([self.shoal.program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_run(self, nodes, *args):
        return self.start("run", self.container, *GENERATE, "--nodes", nodes, "--insecure", "--pool-alone", *args)

    def cut_after(self, host, num_rows):
        """Cuts the host off in the middle of what was just begun: after it has sent the sums of so many rows."""
        wanted = self.network.sent_bytes(host) + num_rows * MOE_LAYERS * BYTES_OF_A_SUM

        def cut():
            wait_until(lambda: self.network.sent_bytes(host) >= wanted, f"{host} to answer")
            self.network.cut(host)

        cutter = threading.Thread(target=cut)
        cutter.start()
        return cutter


def everyone(nodes):
    return ",".join(nodes[host].address for host in HOSTS)


def ended(process):
    out, error = process.communicate(timeout=3 * DEADLINE_S)
    return process.returncode, out, error


def node_of(result, host):
    return next(node for node in result["nodes"] if node["name"] == host)


def over_real_addresses(hosts):
    """From addresses to a plan, and by it to an answer; and slow links."""
    with hosts.nodes({host: hosts.container for host in HOSTS}, measure=True) as nodes:
        plan = os.path.join(hosts.work, "measured.json")
        planning = ("plan", hosts.container, "--nodes", everyone(nodes), "--placement", "units", "--out", plan, "--json")
        hosts.shoal.refused(planning, 2, "--insecure")
        planned = hosts.shoal.ok(*planning, "--insecure")
        check("neither encrypted nor authenticated" in planned.error, "plan: --insecure warns", planned.error)
        with open(hosts.log("a")) as log:
            check("no TLS" in log.read(), "shoal-node: --insecure warns")
        check({node["address"] for node in planned.json["best"]["nodes"]} == {node.address for node in nodes.values()},
              "plan: a pool of the hosts' addresses", planned.text)
        result = hosts.shoal.ok("run", hosts.container, *GENERATE, "--nodes", plan, "--insecure", "--pool-alone")
        check("neither encrypted nor authenticated" in result.error, "run: --insecure warns", result.error)
        check(result.json["ids"] == hosts.answer and all(node["requests"] > 0 for node in result.json["nodes"]),
              "three hosts: the tokens of one machine", result.text)
        # Takes the time that is given to those that answer late.
        with_nobody = hosts.start_run(f"{everyone(nodes)},{NOBODY}")
        slow_links(hosts, nodes)
        status, out, error = ended(with_nobody)
        check(status == 0 and json.loads(out)["ids"] == hosts.answer, "nothing comes from an address: the others give the tokens of one machine", error)
        check(NOBODY in error and "left out" in error, "nothing comes from an address: it is named", error)


def slow_links(hosts, nodes):
    no_rate, no_delay = hosts.network.slow_down("b"), hosts.network.delay("c")
    for what, why in (("rate", no_rate), ("delay", no_delay)):
        if why:
            print(f"note this kernel cannot give a link a {what}, so that is not tried: {why}", flush=True)
    measured = hosts.shoal.ok("bench", "link", hosts.container, "--nodes", everyone(nodes), "--insecure", "--round-trips", 5, "--batches", 1,
                              "--json").json
    direct, narrow, far = (node_of(measured, host) for host in HOSTS)
    if not no_rate:
        # A batch less a burst that goes at once; and what is taken off as a round trip is far less than a batch.
        check(narrow["send_bytes_per_second"] <= 2 * SLOW_BYTES_PER_SECOND and narrow["receive_bytes_per_second"] <= 2 * SLOW_BYTES_PER_SECOND,
              "bench link: the rate of a slow link", str(narrow))
    if not no_delay:
        check(far["round_trip_p50_ms"] >= DELAY_MS, "bench link: the round trip of a long link", str(far))
        check(direct["round_trip_p50_ms"] < far["round_trip_p50_ms"], "bench link: a direct link has a shorter one", str(measured))
    result = hosts.shoal.ok("run", hosts.container, *GENERATE, "--nodes", everyone(nodes), "--insecure", "--pool-alone").json
    check(result["ids"] == hosts.answer, "unequal links: the tokens of one machine")
    for host, why in (("b", no_rate), ("c", no_delay)):
        if not why:
            must("tc", "-n", host, "qdisc", "del", "dev", "eth0", "root")
    if not no_rate:
        must("tc", "-n", "switch", "qdisc", "del", "dev", "b", "root")


def vanishes_with_copies(hosts):
    """The others go on; the coordinator's memory of it is that of `serve`, which sees it come back."""
    with hosts.nodes(hosts.chain, "--allow-drill", "--drill-delay-ms", 5) as nodes:
        answer = hosts.start_run(everyone(nodes))
        cutter = hosts.cut_after("b", 12)
        status, out, error = ended(answer)
        cutter.join()
        result = json.loads(out) if status == 0 else {}
        check(status == 0 and result["ids"] == hosts.answer, "a host vanishes: the tokens of one machine", error)
        lost = node_of(result, "b")
        check(lost["requests"] > 0 and lost["hedges"] + lost["losses"] > 0, "a host vanishes: in the middle of the answer", str(lost))
        hosts.network.cut("b", False)

        cutter = hosts.cut_after("b", 3)  # of 8, that are computed together
        found = logits(hosts.shoal, hosts.container, hosts.work, "--nodes", hosts.chain_plan, "--insecure", "--pool-alone")
        cutter.join()
        check(found == logits(hosts.shoal, hosts.container, hosts.work), "a host vanishes: the logits of one machine, to the bit")
        hosts.network.cut("b", False)
        comes_back(hosts)


def comes_back(hosts):
    serve = hosts.start("serve", hosts.container, "--nodes", hosts.chain_plan, "--insecure", "--pool-alone", "--listen", "127.0.0.1:0", "--json")
    try:
        at = ("--at", json.loads(serve.stdout.readline())["listening_on"], "--json")

        def node_b():
            return node_of(hosts.shoal.ok("cluster", "status", "--interval", 10, *at).json, "b")

        def answers(what):
            # Slowed down a little, so that the drill has something to do.
            report = hosts.shoal.ok("cluster", "drill", "slow", "a", "--factor", 2, "--seconds", 1, "--tokens", 8, *at).json
            check(report["same_tokens"] and report["same_logits"], f"{what}: the same tokens, and the same logits to the bit", str(report))

        hosts.network.cut("b")
        wait_until(lambda: node_b()["state"] == "lost", "b to be given up")
        answers("without the host")
        check(node_b()["requests"] == 0, "the host is not waited for", str(node_b()))
        hosts.network.cut("b", False)
        wait_until(lambda: node_b()["state"] == "live", "b to be back")
        answers("with the host again")
        check(node_b()["requests"] > 0, "the host works again, without any restart", str(node_b()))
    finally:
        serve.kill()
        serve.communicate()


def without_copies(hosts):
    with hosts.nodes(hosts.parts, "--allow-drill", "--drill-delay-ms", 5) as nodes:
        # Goes on meanwhile: it takes the whole time that nodes are given to answer.
        lacking = hosts.start_run(f"{nodes['a'].address},{nodes['c'].address},{NOBODY}")
        vanishes_without_a_copy(hosts, nodes)
        status, _, error = ended(lacking)
        check(status == 1 and NOBODY in error and "units 3-4" in error, "nothing comes from an address, and units are lacking: both are named",
              f"{status}: {error}")


def vanishes_without_a_copy(hosts, nodes):
    answer = hosts.start_run(everyone(nodes), "--node-wait", 1)
    cutter = hosts.cut_after("b", 12)
    status, _, error = ended(answer)
    cutter.join()
    check(status == 1 and all(words in error for words in ("units 3-4", f"b ({nodes['b'].address})")),
          "a host vanishes without a copy: after --node-wait an error with its name and units", f"{status}: {error}")
    hosts.network.cut("b", False)

    answer = hosts.start_run(everyone(nodes))
    hosts.cut_after("b", 12).join()
    wait_until(lambda: begins_to_connect("b"), "the coordinator to look for b by a new connection")
    hosts.network.cut("b", False)
    status, out, error = ended(answer)
    result = json.loads(out) if status == 0 else {}
    check(status == 0 and result["ids"] == hosts.answer, "a host without a copy comes back: the tokens of one machine", error)
    check(node_of(result, "b")["losses"] == 1, "a host without a copy comes back: it was lost once", str(result))


def main():
    program, node_program, container = sys.argv[1:]
    network = Network()
    with tempfile.TemporaryDirectory() as work:
        hosts = Hosts(Shoal(program), node_program, container, work, network)
        over_real_addresses(hosts)
        vanishes_with_copies(hosts)
        without_copies(hosts)
    finish()


if __name__ == "__main__":
    if INSIDE in os.environ:
        main()
    else:
        begin_inside()
