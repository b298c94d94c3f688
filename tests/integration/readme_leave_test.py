#!/usr/bin/env python3
"""The commands and the program of README's "Leave it on", as they are written there, but for what needs root: the directories and
addresses are ones that this test may use, `sudo` only runs what follows it, and services are started by
tests/install/systemctl-by-hand. tests/install/try-install runs the commands as root, with systemd.

    readme_leave_test.py SOURCE_DIR BUILD_DIR CONTAINER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from readme_section import code_blocks, free_port
from shoal_program import check, finish, wait

SUDO = """#!/bin/sh
if [ "$1" = -u ]; then shift 2; fi
case $1 in
  systemd-sysusers) ;;
  systemd-tmpfiles) mkdir -p "$SHOAL_TRY_ROOT/etc/shoal" "$SHOAL_TRY_ROOT/var/lib/shoal" ;;
  systemctl) shift; exec "$SYSTEMCTL" "$@" ;;
  cmake) exec "$@" --prefix "$SHOAL_TRY_ROOT/usr/local" ;;
  *) exec "$@" ;;
esac
"""
UNITS = ("shoal-serve", "shoal-node@attic")


class Section:
    def __init__(self, source, build, container, work):
        self.source, self.work = source, work
        os.makedirs(f"{work}/build")
        os.symlink(container, f"{work}/build/tiny-kimi-linear")
        os.symlink(build, f"{work}/build/release")
        os.symlink(f"{source}/proto", f"{work}/proto")
        os.makedirs(f"{work}/bin")
        with open(f"{work}/bin/sudo", "w") as file:
            file.write(SUDO)
        os.chmod(f"{work}/bin/sudo", 0o755)
        self.environment = dict(os.environ, SHOAL_TRY_ROOT=work, SYSTEMCTL=f"{source}/tests/install/systemctl-by-hand",
                                PATH=f"{work}/bin:{work}/usr/local/bin:{os.environ['PATH']}")
        ports = {}
        self.port = lambda match: ports.setdefault(match, match if match == "0" else str(free_port()))

    def here(self, text):
        """With addresses and places that are this test's."""
        text = re.sub(r"192\.168\.1\.\d+:(\d+)", lambda m: f"127.0.0.1:{self.port(m.group(1))}", text)
        return re.sub(r"(?<=[ '\"])/(var/lib|etc)/shoal", rf"{self.work}/\1/shoal", text)

    def start(self, commands, out):
        return subprocess.Popen(["bash", "-euo", "pipefail", "-c", self.here(commands)], cwd=self.work, env=self.environment, stdout=out,
                                stderr=subprocess.STDOUT)

    def run(self, what, commands):
        """What the commands print; all of them have to end with 0."""
        with tempfile.TemporaryFile("w+") as out:
            status = self.start(commands, out).wait(120)
            out.seek(0)
            said = out.read()
        check(status == 0, what, said)
        return said

    def stop(self):
        for unit in UNITS:
            if os.path.exists(f"{self.work}/{unit}.pid") and not os.path.exists(f"{self.work}/{unit}.status"):
                done = subprocess.run([self.environment["SYSTEMCTL"], "stop", unit], env=self.environment, timeout=60)
                check(done.returncode == 0, f"{unit} ends well", done.returncode)


def invited(section, commands):
    """The code, and the commands that wait until it is used."""
    out = open(f"{section.work}/invited", "w+")
    process = section.start(commands, out)

    def code():
        with open(out.name) as file:
            return re.search(r"shoal-invite-1/\S+", file.read())

    check(wait(lambda: code() or process.poll() is not None) and code(), "an invitation is printed", open(out.name).read())
    return code().group(0), process


class Client:
    """first.py with the lines of this section."""

    def __init__(self, section, first, program):
        self.section, self.program = section, "".join(first.splitlines(keepends=True)[:3]) + section.here(program)
        shutil.copy(f"{section.work}/var/lib/shoal/pool/coordinator/authority.pem", section.work)
        os.makedirs(f"{section.work}/python")
        subprocess.run(["protoc", "-I", "proto", "--python_out=python", "--grpc_python_out=python",
                        "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin", "shoal/v1/inference.proto"], cwd=section.work, check=True)

    def run(self, key):
        return subprocess.run(["/usr/bin/python3", "-c", self.program.replace("shoal_...", key)], cwd=self.section.work,
                              env=dict(os.environ, PYTHONPATH="python"), capture_output=True, text=True, timeout=60)


def main():
    source, build, container = sys.argv[1:]
    readme = os.path.join(source, "README.md")
    blocks = code_blocks(readme, "Leave it on")
    install, coordinator, node, pool = blocks[""]
    first = code_blocks(readme, "Your first API call")["python"][0]
    with tempfile.TemporaryDirectory() as work:
        section = Section(source, build, container, work)
        try:
            section.run("installed", install)
            code, waiting = invited(section, coordinator)
            section.run("a node joins, and is started", node.replace("shoal-invite-1/...", code))
            check(waiting.wait(60) == 0, "the coordinator's commands end when it has joined")
            said = section.run("the node is filled, the coordinator serves", pool)
            check(re.search(r"^attic +live ", said, re.M), "and has the node", said)
            key = re.search(r"shoal_[\w-]+", said).group(0)
            alone = subprocess.run([f"{build}/coordinator/shoal", "run", container, "Once upon a time", "--max-tokens", "60"],
                                   capture_output=True, text=True, check=True).stdout
            client = Client(section, first, blocks["python"][0])
            answer = client.run(key)
            check(len(alone) > 100 and alone.strip() in answer.stdout, "the program with its key gets the text of `shoal run`",
                  answer.stdout + answer.stderr)
            answer = client.run("shoal_other")
            check(answer.returncode != 0 and "UNAUTHENTICATED" in answer.stderr, "and with another nothing", answer.stderr)
        finally:
            section.stop()
    finish()


main()
