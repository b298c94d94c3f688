#!/usr/bin/env python3
"""The commands and the program of README's "Your first API call", as they are written there, with this build's program and container.

    readme_api_test.py SOURCE_DIR BUILD_DIR CONTAINER
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile

from shoal_program import check, finish


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    source, build, container = sys.argv[1:]
    with open(os.path.join(source, "README.md")) as file:
        section = re.search(r"^## Your first API call\n(.*?)^## ", file.read(), re.S | re.M).group(1)
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```$", section, re.S | re.M))
    commands, program = blocks[""], blocks["python"]
    check(len(program.strip().splitlines()) <= 10, "ten lines")
    check("first.py" in commands, "the program is run")
    with tempfile.TemporaryDirectory() as work:
        address = f"127.0.0.1:{free_port()}"
        os.symlink(os.path.join(source, "proto"), os.path.join(work, "proto"))
        with open(os.path.join(work, "first.py"), "w") as file:
            file.write(program.replace("127.0.0.1:7070", address))
        commands = commands.replace("build/release/", f"{build}/").replace("build/tiny-kimi-linear", container).replace("127.0.0.1:7070", address)
        # In a session of its own, so that the server it leaves in the background can be ended with it.
        process = subprocess.Popen(["bash", "-c", f"{commands}\necho status $? >&2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, text=True, cwd=work)
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("status "):
                break
        os.killpg(process.pid, signal.SIGKILL)
        text = process.stdout.read()
        process.wait()
    alone = subprocess.run([f"{build}/coordinator/shoal", "run", container, "Once upon a time", "--max-tokens", "60"], capture_output=True, text=True,
                           check=True).stdout
    check(said[-1] == "status 0\n", "the last command ends with 0", "".join(said))
    check(len(alone) > 100 and alone.strip() in text, "the text is that of `shoal run`", text)
    finish()


if __name__ == "__main__":
    main()
