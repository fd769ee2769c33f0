"""Text for generated C files. Scripts of the build import it: meson puts this folder into their PYTHONPATH."""


def c_string(text):
    """A string literal in as many lines as the text has."""
    lines = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") for line in text.splitlines())
    return "\n".join(f'\t\t"{line}\\n"' for line in lines)
