#!/usr/bin/env python3
"""The commands and the program of README's "Your first API call", as they are written there, with this build's program and container.

    readme_api_test.py SOURCE_DIR BUILD_DIR CONTAINER
"""

import os
import subprocess
import sys
import tempfile

from readme_section import code_blocks, free_port, run_commands
from shoal_program import check, finish


def main():
    source, build, container = sys.argv[1:]
    blocks = code_blocks(os.path.join(source, "README.md"), "Your first API call")
    commands, program = blocks[""][-1], blocks["python"][-1]
    check(len(program.strip().splitlines()) <= 10, "ten lines")
    check("first.py" in commands, "the program is run")
    with tempfile.TemporaryDirectory() as work:
        address = f"127.0.0.1:{free_port()}"
        os.symlink(os.path.join(source, "proto"), os.path.join(work, "proto"))
        with open(os.path.join(work, "first.py"), "w") as file:
            file.write(program.replace("127.0.0.1:7070", address))
        text, ended_well, said = run_commands(commands.replace("127.0.0.1:7070", address), build, container, cwd=work)
    alone = subprocess.run([f"{build}/coordinator/shoal", "run", container, "Once upon a time", "--max-tokens", "60"], capture_output=True, text=True,
                           check=True).stdout
    check(ended_well, "the last command ends with 0", said)
    check(len(alone) > 100 and alone.strip() in text, "the text is that of `shoal run`", text)
    finish()


if __name__ == "__main__":
    main()
