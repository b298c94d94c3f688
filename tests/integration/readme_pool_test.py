#!/usr/bin/env python3
"""The commands of README's "Your first pool", as they are written there, with this build's programs and container.

    readme_pool_test.py README BUILD_DIR CONTAINER
"""

import os
import re
import signal
import subprocess
import sys

from shoal_program import check, finish


def main():
    readme, build, container = sys.argv[1:]
    with open(readme) as file:
        section = re.search(r"^## Your first pool\n(.*?)^## ", file.read(), re.S | re.M).group(1)
    commands = re.search(r"^```\n(.*?)^```", section, re.S | re.M).group(1)
    check(len(commands.strip().splitlines()) == 3, "three commands")
    commands = commands.replace("build/release/", f"{build}/").replace("build/tiny-kimi-linear", container)
    # In a session of its own, so that the nodes it leaves in the background can be ended with it.
    process = subprocess.Popen(["bash", "-c", f"{commands}\necho status $? >&2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True, text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("status "):
            break
    os.killpg(process.pid, signal.SIGKILL)
    text = process.stdout.read()
    process.wait()
    alone = subprocess.run([f"{build}/coordinator/shoal", "run", container, "Once upon a time"], capture_output=True, text=True, check=True).stdout
    check(said[-1] == "status 0\n", "the last command ends with 0", "".join(said))
    check(len(alone) > 100 and alone.strip() in text, "the pool continues the sentence as one machine does", text)
    finish()


if __name__ == "__main__":
    main()
