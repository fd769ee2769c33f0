"""Turns postrider.SHELL files into the C table that src/cli/completion.h declares: embed.py OUTPUT FILE…"""

import pathlib
import sys

from c_text import c_string


def row(path):
    return f'\t{{ "{path.suffix[1:]}",\n{c_string(path.read_text(encoding="utf-8"))} }},\n'


def main():
    output, *names = sys.argv[1:]
    rows = "".join(row(pathlib.Path(name)) for name in names)
    pathlib.Path(output).write_text(
        '#include "cli/completion.h"\n\n'
        f"const struct completion_script completion_scripts[] = {{\n{rows}\t{{ 0 }},\n}};\n", encoding="utf-8")


main()
