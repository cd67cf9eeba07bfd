#!/usr/bin/env python3
"""Tokens per second against streams, as an SVG.

    tests/bench/speed_svg.py docs/speed.csv docs/speed.svg

The CSV has rows server,streams,tok_s, as `serve_bench.py peers --csv FILE` writes them; lines that start with #
describe what was measured and where, and appear below the chart. Standard library only."""

import csv
import html
import sys

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 40, 90
COLOURS = ["#0b6e4f", "#c05621", "#5a67d8", "#975a16", "#2b6cb0"]
FONT = 'font-family="system-ui, sans-serif"'


def read(path):
    """([notes], {server: [(streams, tok_s)]}) in the order of the file."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    notes = [line.lstrip("# ") for line in lines if line.startswith("#")]
    series = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        series.setdefault(row["server"], []).append((int(row["streams"]), float(row["tok_s"])))
    return notes, series


def nice_step(most):
    """The least of 1, 2, 5 times a power of ten that needs at most six lines."""
    step = 1
    while most / step > 6:
        step = step * 2 if str(step)[0] in "15" else step * 5 // 2
    return step


def text(x, y, words, size=13, anchor="start", colour="#222", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" {FONT} {more}>{html.escape(words)}</text>'


def draw(notes, series):
    streams = sorted({n for points in series.values() for n, _ in points})
    most = max(rate for points in series.values() for _, rate in points)
    step = nice_step(most)
    top = step * -(-most // step)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x_of(n):  # evenly, one place for each number of streams
        return LEFT + (right - LEFT) * streams.index(n) / max(1, len(streams) - 1)

    def y_of(rate):
        return bottom - (bottom - TOP) * rate / top

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="tokens per second against streams">']
    out.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    out.append(text(LEFT, 22, "tokens per second, all streams together", 14, more='font-weight="bold"'))
    value = 0
    while value <= top:
        y = y_of(value)
        out.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y + 4, f"{value:g}", 12, "end"))
        value += step
    for n in streams:
        out.append(text(x_of(n), bottom + 18, f"{n} stream{'s' if n > 1 else ''}", 12, "middle"))
    names = []
    for (server, points), colour in zip(series.items(), COLOURS):
        places = " ".join(f"{x_of(n):.1f},{y_of(rate):.1f}" for n, rate in sorted(points))
        out.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x_of(n):.1f}" cy="{y_of(rate):.1f}" r="3.5" fill="{colour}"/>' for n, rate in points]
        names.append([y_of(max(points)[1]), server, max(points)[1], colour])
    last = -100.0
    for y, server, rate, colour in sorted(names):
        last = max(y, last + 18)  # names never overlap
        out.append(text(right + 10, last + 4, f"{server}: {rate:g}", 12.5, colour=colour))
    for i, note in enumerate(notes):
        out.append(text(LEFT, HEIGHT - 46 + 17 * i, note, 11.5, colour="#555"))
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: speed_svg.py FILE.csv FILE.svg")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(*read(sys.argv[1])))


if __name__ == "__main__":
    main()
