#!/usr/bin/env python3
"""Records quickstart and a streamed answer in a terminal as an SVG.

    tests/bench/terminal_svg.py docs/quickstart.svg [--port N]

Runs `deploy/quickstart` and, when the server is ready, the curl line of its banner, both on a pseudo-terminal, and draws
their output: the first and last lines of each, long lines truncated. Standard library only."""

import argparse
import html
import os
import pathlib
import pty
import re
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, LINE, FONT_SIZE = 108, 17, 12.5
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Terminal:
    """A command on a pseudo-terminal; .lines grows as it prints."""

    def __init__(self, command):
        self.lines = []
        self.grown = threading.Condition()
        outer, inner = pty.openpty()
        self.process = subprocess.Popen("exec " + command, shell=True, stdin=subprocess.DEVNULL, stdout=inner, stderr=inner, cwd=ROOT)
        os.close(inner)
        self.outer = outer
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        text = ""
        while True:
            try:
                data = os.read(self.outer, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            text += data.decode(errors="replace")
            *whole, text = text.split("\n")
            with self.grown:
                self.lines += [CONTROL.sub("", line) for line in whole]
                self.grown.notify_all()
        with self.grown:
            self.lines += [CONTROL.sub("", text)] if text else []
            self.reader = None
            self.grown.notify_all()

    def wait(self, pattern):
        """The first line that matches; None when the command ends without one."""
        with self.grown:
            while True:
                found = next((line for line in self.lines if re.search(pattern, line)), None)
                if found or self.reader is None:
                    return found
                self.grown.wait()


def shorten(lines, first, last):
    lines = [line for line in lines if line.strip()]
    if len(lines) <= first + last + 1:
        return lines
    return [*lines[:first], f"   [{len(lines) - first - last} lines more]", *lines[-last:]]


def fold(line):
    """A line as it is drawn: commands on as many lines as they need, what an event says before what it repeats."""
    line = line.replace(os.path.expanduser("~"), "~")
    if line.startswith("data: {") and '"choices":' in line:
        line = "data: {…," + line[line.index('"choices":') :]
    if line.startswith("$ "):
        return [line[i : i + COLUMNS] for i in range(0, len(line), COLUMNS)]
    return [line]


def draw(lines):
    height = LINE * (len(lines) + 2)
    width = COLUMNS * FONT_SIZE * 0.605 + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" aria-label="quickstart in a terminal">']
    out.append(f'<rect width="{width:.0f}" height="{height}" rx="6" fill="#16181d"/>')
    style = f'font-family="ui-monospace, DejaVu Sans Mono, monospace" font-size="{FONT_SIZE}" xml:space="preserve"'
    for i, line in enumerate(lines):
        colour = "#8fd694" if line.startswith("$ ") else "#7fb2f0" if line.startswith("==>") else "#d7dae0"
        shown = line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"
        out.append(f'<text x="12" y="{LINE * (i + 1.6):.1f}" fill="{colour}" {style}>{html.escape(shown)}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("svg")
    parser.add_argument("--port", default="8080")
    options = parser.parse_args()
    command = "./deploy/quickstart" + ("" if options.port == "8080" else f" --port {options.port}")
    server = Terminal(command)
    try:
        line = server.wait(r"^ +try +curl ")
        if not line:
            raise SystemExit("\n".join(server.lines[-20:]))
        curl = line[line.index("curl") :]
        answer = Terminal(curl)
        answer.process.wait()
        answer.wait(r"\[DONE\]")
    finally:
        server.process.terminate()
        server.process.wait()
    printed = server.lines[: server.lines.index(line) + 1]
    lines = [f"$ {command}", *shorten(printed, 3, 12), "", f"$ {curl}", *shorten(answer.lines, 16, 3)]
    pathlib.Path(options.svg).write_text(draw([part for line in lines for part in fold(line)]), encoding="utf-8")


if __name__ == "__main__":
    main()
