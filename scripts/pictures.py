"""SVG pictures for scripts/pictures.sh: a terminal with the text of a file, or the lanes of a time trace in Chrome's format.

usage: pictures.py terminal TEXT OUT.svg | trace JSON OUT.svg
"""

import json
import sys
from html import escape

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
# Okabe and Ito's palette, which colour-blind readers can distinguish.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#6e7781"]


def svg(width, height, background, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" font-family="{escape(FONT)}" font-size="13">'
    return "\n".join([head, f'<rect width="100%" height="100%" rx="8" fill="{background}"/>', *parts, "</svg>"]) + "\n"


def terminal(text):
    """The lines unchanged; a command after `$ ` is brighter."""
    lines = text.splitlines()
    parts = []
    for index, line in enumerate(lines):
        colour = "#ffffff" if line.startswith("$ ") else "#c9d1d9"
        parts.append(f'<text x="16" y="{28 + 18 * index}" fill="{colour}" xml:space="preserve">{escape(line)}</text>')
    return svg(32 + 7.85 * max(map(len, lines)), 26 + 18 * len(lines), "#161b22", parts)


def trace(events):
    """A row for each depth of each lane, and a bar for each span; totals over all lanes are omitted."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X" and not event["name"].startswith("Total ")]
    end = max(span["ts"] + span["dur"] for span in spans)
    width, left = 1000, 20
    scale = (width - 2 * left) / end
    parts, row, colours, named = [], 30, {}, set()
    for tid in sorted({span["tid"] for span in spans}):
        own = sorted((span for span in spans if span["tid"] == tid), key=lambda span: (span["ts"], -span["dur"]))
        parts.append(f'<text x="{left}" y="{row}" fill="#24292f" font-weight="bold">{escape(names.get(tid, "offld"))}</text>')
        row += 8
        open_until, deepest = [], 0
        for span in own:
            while open_until and open_until[-1] <= span["ts"]:
                open_until.pop()
            depth = len(open_until)
            open_until.append(span["ts"] + span["dur"])
            wide = span["dur"] * scale
            if wide < 1:
                continue
            deepest = max(deepest, depth + 1)
            colour = colours.setdefault(span["name"], COLOURS[len(colours) % len(COLOURS)])
            x, y = left + span["ts"] * scale, row + 22 * depth
            what = f'{span["name"]}, {span["dur"] / 1000:.1f} ms'
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="20" fill="{colour}"><title>{escape(what)}</title></rect>')
            shown = next((label for label in (what, span["name"]) if 7.4 * len(label) < wide - 6), "")
            if shown:
                named.add(span["name"])
                parts.append(f'<text x="{x + 4:.1f}" y="{y + 14}" font-size="12" fill="#ffffff">{escape(shown)}</text>')
        row += 22 * deepest + 24
    # A ruler with round steps.
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if end / 1000 / step <= 10)
    for tick in range(0, int(end / 1000) + 1, step):
        x = left + tick * 1000 * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{row - 8}" stroke="#24292f" stroke-opacity="0.15"/>')
        parts.append(f'<text x="{x + 3:.1f}" y="{row + 6}" font-size="11" fill="#57606a">{tick} ms</text>')
    # A legend for bars that are too narrow for their names.
    x, row = left, row + 28
    for name, colour in colours.items():
        if name in named:
            continue
        parts.append(f'<rect x="{x:.0f}" y="{row - 10}" width="11" height="11" fill="{colour}"/><text x="{x + 16:.0f}" y="{row}" font-size="11" fill="#24292f">{escape(name)}</text>')
        x += 26 + 6.7 * len(name)
    return svg(width, row + 14, "#ffffff", parts)


def main(kind, source, out):
    with open(source, encoding="utf-8") as file:
        picture = terminal(file.read()) if kind == "terminal" else trace(json.load(file)["traceEvents"])
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
