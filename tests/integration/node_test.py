#!/usr/bin/env python3
"""shoal-node as a process: readiness, refusals, exit codes, drain, memory and idleness.

    node_test.py SHOAL_NODE CONTAINER
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from shoal_program import check, finish

DEADLINE_S = 60


def run(*args):
    done = subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout, done.stderr


class Node:
    """A node that serves, from its first line on."""

    def __init__(self, program, *args):
        self.process = subprocess.Popen([program, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline()

    def end(self, signal_number):
        """Exit status, the rest of standard output, and standard error after this signal."""
        self.process.send_signal(signal_number)
        out, error = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, error

    def status(self, field):
        """A size in /proc, in bytes."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def help_and_flags(program, model):
    status, out, _ = run(program, "--help")
    check("IP:PORT" in out and "TEXT" not in out and "INT" not in out and max(map(len, out.splitlines())) <= 100, "--help names values as `shoal --help` does", out)
    check(status == 0 and "Examples:" in out and "Exit codes:" in out, "--help has examples and exit codes", out)
    for args, words in (
        ((), ("DIR",)),
        ((model, "--tls", ""), ("--tls", "a value is missing")),
        (("--join", "shoal-invite-1/x"), ("--join",)),
        ((model, "--listen", "localhost"), ("write IP:PORT",)),
        ((model, "--listen", "0.0.0.0:0"), ("not loopback", "--insecure")),
        ((model, "--listen", "127.0.0.1:0", "--name", "a b"), ("a b", "1 to 63")),
        ((model, "--listen", "127.0.0.1:0", "--metrics", "9101"), ("--metrics: '9101'",)),
        ((model, "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"), ("--metrics 0.0.0.0:0", "plain HTTP", "--insecure")),
        ((model, "--listen", "127.0.0.1:0", "--budget", "8G"), ("--budget: '8G'",)),
        ((model, "--listen", "127.0.0.1:0", "--drill-delay-ms", "5"), ("--allow-drill",)),
        ((model, "--listen", "127.0.0.1:0", "--drill-read-rate", "5MB"), ("--allow-drill",)),
        ((model, "--listen", "127.0.0.1:0", "--allow-drill", "--drill-read-rate", "999"), ("--drill-read-rate 999", "1000 B or more")),
        ((model, "--listen", "127.0.0.1:0", "--allow-drill", "--drill-read-rate", "5M"), ("--drill-read-rate: '5M'",)),
        ((model, "--listen", "127.0.0.1:0", "--allow-drill", "--drill-read-rate", "abc"), ("--drill-read-rate: 'abc'",)),
        ((model, "--nonsense"), ("--nonsense",)),
    ):
        status, out, error = run(program, *args)
        label = " ".join(map(str, args[1:]))
        check(status == 2 and all(word in out + error for word in words), f"`{label}` is refused with 2", f"{status}: {out}{error}")


def refusals(program, model):
    status, _, error = run(program, model + "-missing", "--listen", "127.0.0.1:0")
    check(status == 2 and "-missing" in error and "--name" in error, "a directory that is not there, without a name, is refused with 2", error)
    for name in ((), ("--name", "x")):
        status, _, error = run(program, model + "-missing/below", "--listen", "127.0.0.1:0", *name)
        check(status == 2 and f"the directory {model}-missing, in which" in error and "make it" in error, "a directory whose parent is not there is refused with 2", error)
    status, _, error = run(program, os.path.join(model, "experts"), "--listen", "127.0.0.1:0", "--name", "x")
    check(status == 1 and "is not a container" in error, "a directory that is no container is refused", error)
    status, _, error = run(program, model, "--listen", "127.0.0.1:0", "--budget", "8MiB")
    check(status == 3 and all(word in error for word in ("program", "messages", "expert_cache", "floor", "--budget")),
          "a budget below the floor is refused with 3 and the table", f"{status}: {error}")
    with tempfile.TemporaryDirectory() as scratch:
        damaged = os.path.join(scratch, "model")
        shutil.copytree(model, damaged)
        with open(os.path.join(damaged, "codebooks.bin"), "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        status, _, error = run(program, damaged, "--listen", "127.0.0.1:0")
        check(status == 4 and "codebooks.bin" in error, "a damaged small file is refused with 4", f"{status}: {error}")
        bank = next(f for f in sorted(os.listdir(os.path.join(model, "experts"))) if f.endswith(".bank"))
        shutil.rmtree(damaged)
        shutil.copytree(model, damaged)
        with open(os.path.join(damaged, "experts", bank), "r+b") as file:
            file.seek(200)  # in the first expert's first unit, which the probe computes
            file.write(b"\x5a\xa5\x5a\xa5")
        status, _, error = run(program, damaged, "--listen", "127.0.0.1:0")
        check(status == 4 and bank in error, "a damaged expert that the probe reads is refused with 4", f"{status}: {error}")


def serves(program, model):
    node = Node(program, model, "--listen", "127.0.0.1:0", "--json")
    ready = json.loads(node.line)
    address = ready["listening_on"]
    check(address.startswith("127.0.0.1:") and not address.endswith(":0"), "the line has the real port", node.line)
    check(ready["read_bytes_per_second"] > 0 and ready["compute_bytes_per_second"] > 0, "disk and kernels were measured", node.line)
    status, _, error = run(program, model, "--listen", address)
    check(status == 1 and "in use" in error and address in error, "a port in use is refused by name", f"{status}: {error}")
    before = node.cpu_seconds()
    time.sleep(3)  # the time that is measured
    used = node.cpu_seconds() - before
    check(used <= 0.03, "an idle node uses less than 1 % of a processor", f"{used} s of 3")
    peak = node.status("VmHWM")
    check(peak <= ready["budget_bytes"], "the peak is within the budget chosen", str(peak))
    status, out, error = node.end(signal.SIGTERM)
    check(status == 0 and out == "" and "draining" in error, "SIGTERM drains and ends with 0", f"{status}: {out}{error}")
    node = Node(program, model, "--listen", "127.0.0.1:0", "--no-measure")
    status, out, error = node.end(signal.SIGHUP)
    check(status == 0 and "draining" in error, "so does a terminal that is closed", f"{status}: {out}{error}")


def tells_metrics(program, model):
    node = Node(program, model, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--no-measure", "--json")
    ready = json.loads(node.line)
    where = ready["metrics_on"]
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=DEADLINE_S) as answer:
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}
    check(kind.startswith("text/plain; version=0.0.4"), "metrics are in the text format of Prometheus", kind)
    check(values.get("shoal_memory_budget_bytes") == ready["budget_bytes"], "with the budget", text)
    check(0 < values.get("shoal_memory_resident_bytes", 0) <= ready["budget_bytes"], "with the memory that it has", text)
    # It computed an expert of its first layer to see that it can.
    check(values.get("shoal_expert_read_bytes_total", 0) > 0, "with what was read", text)
    check(values.get('shoal_node_layers_total{result="ok"}') == 0, "and no layer was asked for yet", text)
    for family in {name.split("{")[0] for name in values}:
        check(f"# HELP {family} " in text and f"# TYPE {family} " in text, f"{family} has its help and type", text)
    try:
        urllib.request.urlopen(f"http://{where}/", timeout=DEADLINE_S)
        check(False, "another path is not there")
    except urllib.error.HTTPError as error:
        check(error.code == 404, "another path is not there", str(error))
    status, _, error = run(program, model, "--listen", "127.0.0.1:0", "--metrics", where, "--no-measure")
    check(status == 1 and "in use" in error and where in error, "a port for metrics that is in use is refused by name", error)
    node.end(signal.SIGTERM)


def ends_while_it_opens(program, model):
    """On a disk so slow that the probe of the first expert takes for ever; and while an empty node measures its disk."""
    with tempfile.TemporaryDirectory() as scratch:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for label, args, ready in (
                ("it reads its first expert", (model, "--allow-drill", "--drill-read-rate", "1000B"), reads_a_bank),
                ("it measures an empty disk", (os.path.join(scratch, "empty"), "--name", "x"), has_a_scratch_file),
            ):
                process = subprocess.Popen([program, *args, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                deadline = time.monotonic() + DEADLINE_S
                while not ready(process.pid) and process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.002)  # between two looks at the condition
                process.send_signal(number)
                try:
                    out, error = process.communicate(timeout=DEADLINE_S)
                finally:
                    process.kill()
                check(process.returncode == 128 + number and out == "", f"{number.name} ends a node while {label}",
                      f"{process.returncode}: {out}{error}")


def open_files(pid):
    folder = f"/proc/{pid}/fd"
    try:
        return [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)]
    except OSError:  # one was closed meanwhile
        return []


def reads_a_bank(pid):
    return any(name.endswith(".bank") for name in open_files(pid))


def has_a_scratch_file(pid):
    return any(".shoal-scratch-" in name for name in open_files(pid))


def stays_in_the_budget(program, model):
    _, _, error = run(program, model, "--listen", "127.0.0.1:0", "--budget", "1MiB")
    floor = int(error.split("at least")[-1].split()[0])
    node = Node(program, model, "--listen", "127.0.0.1:0", "--budget", floor)
    check(node.line.startswith("listening on 127.0.0.1:"), "the floor is enough", node.line)
    peak = node.status("VmHWM")
    check(peak <= floor, f"the peak of {peak} bytes is within the floor of {floor}")
    status, _, error = node.end(signal.SIGINT)
    check(status == 0, "SIGINT ends with 0 too", f"{status}: {error}")
    status, _, error = run(program, model, "--listen", "127.0.0.1:0", "--budget", floor - 1)
    check(status == 3, "one byte less is not", f"{status}: {error}")


def warns(program, model):
    node = Node(program, model, "--listen", "0.0.0.0:0", "--insecure", "--no-measure", "--json", "--name", "open-1")
    ready = json.loads(node.line)
    check(ready["read_bytes_per_second"] == 0 and ready["name"] == "open-1", "--no-measure and --name are heard", node.line)
    status, _, error = node.end(signal.SIGTERM)
    check(status == 0 and "no TLS" in error, "--insecure warns", f"{status}: {error}")


def throttles(program, model):
    node = Node(program, model, "--listen", "127.0.0.1:0", "--json", "--allow-drill", "--drill-read-rate", "2MB")
    ready = json.loads(node.line)
    check(0 < ready["read_bytes_per_second"] <= 2_000_000, "what is measured is the throttled rate", node.line)
    status, _, error = node.end(signal.SIGTERM)
    check(status == 0 and "drills are allowed" in error, "--allow-drill warns", f"{status}: {error}")


def main():
    program, model = sys.argv[1:]
    help_and_flags(program, model)
    refusals(program, model)
    serves(program, model)
    tells_metrics(program, model)
    ends_while_it_opens(program, model)
    stays_in_the_budget(program, model)
    warns(program, model)
    throttles(program, model)
    finish()


if __name__ == "__main__":
    main()
