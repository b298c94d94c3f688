"""Runs what a section of README tells people to type."""

import os
import re
import signal
import subprocess


def code_blocks(readme, heading):
    """The code of a section, by language: {"": commands, "python": ...}; the last of each."""
    with open(readme) as file:
        section = re.search(rf"^## {heading}\n(.*?)^## ", file.read(), re.S | re.M).group(1)
    return dict(re.findall(r"^```(\w*)\n(.*?)^```$", section, re.S | re.M))


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
