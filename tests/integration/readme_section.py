"""Runs what a section of README tells people to type."""

import os
import re
import signal
import socket
import subprocess


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def code_blocks(readme, heading):
    """The code of a section, by language, in order: {"": [commands, ...], "python": [...]}."""
    with open(readme) as file:
        section = re.search(rf"^## {heading}\n(.*?)^## ", file.read(), re.S | re.M).group(1)
    blocks = {}
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", section, re.S | re.M):
        blocks.setdefault(language, []).append(code)
    return blocks


def run_commands(commands, build, container, cwd=None):
    """What they print, and whether the last one ended with 0, or else what was said on standard error."""
    commands = commands.replace("build/release/", f"{build}/").replace("build/tiny-kimi-linear", container)
    # In a session of its own, so that what it leaves in the background can be ended with it.
    process = subprocess.Popen(["bash", "-c", f"{commands}\necho status $? >&2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, text=True, cwd=cwd)
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("status "):
            break
    os.killpg(process.pid, signal.SIGKILL)
    text = process.stdout.read()
    process.wait()
    return text, said[-1] == "status 0\n", "".join(said)
