#!/usr/bin/env python3
"""The commands of README's "Your first pool", as they are written there, with this build's programs and container.

    readme_pool_test.py README BUILD_DIR CONTAINER
"""

import subprocess
import sys

from readme_section import code_blocks, run_commands
from shoal_program import check, finish


def main():
    readme, build, container = sys.argv[1:]
    begin, stop = code_blocks(readme, "Your first pool")[""]
    check(len(begin.strip().splitlines()) == 3, "three commands")
    # Both nodes end, and well.
    text, ended_well, said = run_commands(f"set -e\n{begin}nodes=$(jobs -p)\n{stop}for node in $nodes; do wait $node; done", build, container)
    alone = subprocess.run([f"{build}/coordinator/shoal", "run", container, "Once upon a time"], capture_output=True, text=True, check=True).stdout
    check(ended_well, "the last command ends with 0", said)
    check(len(alone) > 100 and alone.strip() in text, "the pool continues the sentence as one machine does", text)
    finish()


if __name__ == "__main__":
    main()
