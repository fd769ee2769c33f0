"""Turns NNNN_name.sql files into the C table that src/pg/migrate.h declares: embed.py OUTPUT FILE…"""

import hashlib
import pathlib
import re
import sys

from c_text import c_string

TAG = "$migration$"  # what src/pg/migrate.c quotes each of them with


def serves(number, path, text):
    """The oldest program that can work on this version: `-- serves: N` in the first line, or only its own."""
    match = re.match(r"-- serves: (\d+)\n", text)
    oldest = int(match[1]) if match else number
    if not 1 <= oldest <= number:
        sys.exit(f"{path}: a migration serves programs that know version 1 to {number}, not {oldest}")
    return oldest


def row(number, path):
    match = re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", path.name)
    if not match or int(match[1]) != number:
        sys.exit(f"{path}: expected {number:04}_name.sql: versions are numbered from 1 without a gap")
    text = path.read_text(encoding="utf-8")
    if TAG in text:
        sys.exit(f"{path}: {TAG} cannot stand inside a migration")
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f'\t{{ {number}, "{match[2]}", "{checksum}", {serves(number, path, text)},\n{c_string(text)} }},\n'


def main():
    output, *names = sys.argv[1:]
    rows = "".join(row(i, pathlib.Path(name)) for i, name in enumerate(sorted(names), start=1))
    pathlib.Path(output).write_text(
        '#include "pg/migrate.h"\n\n'
        f"const struct migration migrations[] = {{\n{rows}}};\n\n"
        "const size_t n_migrations = sizeof(migrations) / sizeof(migrations[0]);\n", encoding="utf-8")


main()
