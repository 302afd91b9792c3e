#!/usr/bin/env python3
"""Simulates device links on up to 1,000 nodes, from the figures of cluster.py (docs/dev/measurements.md): a table, and docs/images/cluster.svg.

usage: cluster-simulation.py [--write]     --write: writes the plot into docs/images/cluster.svg

Model: JOBS device links start at the same time. The controller starts jobs one after the other, at the measured rate. A node runs one
job at a time, and each job adds the measured overhead to its link. Inputs and images go through one file server, one after the other.
Link times are log-normal. The baseline is the same links on one machine with 32 CPU cores.
Not simulated: a queue with other users' jobs, and nodes with faster or slower CPUs.
"""

import heapq
import json
import math
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = json.loads((HERE / "cluster.json").read_text())
JOBS = 4000
NODES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
# Median link times, in seconds.
LINKS = [0.5, 2, 10, 60]
BASELINE_CORES = 32
# Bytes per second of the file server: a network of 10 Gbit/s.
SERVER = 1.25e9
SEED = 16


def bytes_of(seconds):
    """Returns the bytes that a link moves to its job and from it. Interpolates between the measured sizes; beyond the largest, the
    bytes are proportional to the time, and below the smallest, they are those of the smallest."""
    sizes = sorted(FIGURES["sizes"], key=lambda size: size["seconds"])
    smallest, largest = sizes[0], sizes[-1]
    for before, after in zip(sizes, sizes[1:]):
        if before["seconds"] <= seconds < after["seconds"]:
            part = (seconds - before["seconds"]) / (after["seconds"] - before["seconds"])
            return tuple(before[name] + part * (after[name] - before[name]) for name in ("to_job", "from_job"))
    if seconds < smallest["seconds"]:
        return smallest["to_job"], smallest["from_job"]
    return tuple(largest[name] * seconds / largest["seconds"] for name in ("to_job", "from_job"))


def durations(median):
    """Returns random link times, the same ones for all numbers of nodes. The longest come first, as in offld's schedule."""
    numbers = random.Random(SEED)
    return sorted((median * math.exp(numbers.gauss(0, 0.7)) for _ in range(JOBS)), reverse=True)


def one_machine(links):
    """Returns the total time on one machine."""
    cores = [0.0] * BASELINE_CORES
    for link in links:
        heapq.heapreplace(cores, cores[0] + link)
    return max(cores)


def cluster(links, nodes):
    """Returns the total time on a cluster."""
    free = [0.0] * nodes
    starts, controller = 1 / FIGURES["jobs_per_second"], 0.0
    overhead = FIGURES["overhead"]["slurm"]
    # Events of the file server, which serves them in order of time: (time, whether a job ends, bytes to move, link time).
    events, waiting, server, last = [], list(reversed(links)), 0.0, 0.0

    def begin():
        nonlocal controller
        while waiting and free:
            ready = heapq.heappop(free)
            controller = max(controller, ready) + starts
            link = waiting.pop()
            heapq.heappush(events, (controller + overhead, False, bytes_of(link)[0], link))

    begin()
    while events:
        now, is_end, moved, link = heapq.heappop(events)
        server = max(server, now) + moved / SERVER
        if is_end:
            last = max(last, server)
            heapq.heappush(free, server)
            begin()
        else:
            heapq.heappush(events, (server + link, True, bytes_of(link)[1], link))
    return last


def plot(rows):
    """Returns an SVG plot of the speedup over the number of nodes, with two logarithmic axes."""
    width, height, left, right, top, bottom = 760, 470, 70, 150, 46, 56
    colours = ["#b5482a", "#c98a12", "#2f7d4f", "#2458a6"]
    low, high = 0.01, 50
    across = lambda nodes: left + (width - left - right) * math.log(nodes) / math.log(1000)
    up = lambda gain: height - bottom - (height - top - bottom) * math.log(gain / low) / math.log(high / low)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="DejaVu Sans, Arial, sans-serif" font-size="13">',
        f'<title>{JOBS} device links on 1 to 1,000 nodes, compared with one machine with {BASELINE_CORES} cores</title>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="24" font-size="15" fill="#222222">{JOBS:,} device links: speedup over one machine with {BASELINE_CORES} cores</text>',
    ]
    for gain in (0.01, 0.1, 1, 10):
        weight = 'stroke="#777777"' if gain == 1 else 'stroke="#dddddd"'
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{up(gain):.1f}" y2="{up(gain):.1f}" {weight}/>')
        out.append(f'<text x="{left - 8}" y="{up(gain) + 4:.1f}" text-anchor="end" fill="#444444">{gain:g}</text>')
    for nodes in (1, 10, 100, 1000):
        out.append(f'<line x1="{across(nodes):.1f}" x2="{across(nodes):.1f}" y1="{top}" y2="{height - bottom}" stroke="#eeeeee"/>')
        out.append(f'<text x="{across(nodes):.1f}" y="{height - bottom + 20}" text-anchor="middle" fill="#444444">{nodes:,}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 14}" text-anchor="middle" fill="#444444">nodes, one link at a time on each</text>')
    ideal = f'M{across(1):.1f} {up(1 / BASELINE_CORES):.1f}L{across(1000):.1f} {up(1000 / BASELINE_CORES):.1f}'
    out.append(f'<path d="{ideal}" stroke="#999999" stroke-dasharray="5 4" fill="none"/>')
    ends = [up(1000 / BASELINE_CORES)]
    out.append(f'<text x="{width - right + 8}" y="{ends[0] + 4:.1f}" fill="#666666">ideal</text>')
    # Labels at the ends of the lines, without overlaps.
    for (median, gains), colour in sorted(zip(rows.items(), colours), key=lambda row: -row[0][1][-1]):
        points = " ".join(f"{across(nodes):.1f},{up(gain):.1f}" for nodes, gain in zip(NODES, gains))
        out.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="2.2" fill="none"/>')
        out.extend(f'<circle cx="{across(n):.1f}" cy="{up(g):.1f}" r="2.8" fill="{colour}"/>' for n, g in zip(NODES, gains))
        ends.append(max(up(gains[-1]), ends[-1] + 17))
        out.append(f'<text x="{width - right + 8}" y="{ends[-1] + 4:.1f}" fill="{colour}">links of {median:g} s</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    rows = {}
    print(f"| links of | one machine | {' | '.join(f'{nodes:,}' for nodes in NODES)} |")
    print(f"|--:|--:|{'--:|' * len(NODES)}")
    for median in LINKS:
        links = durations(median)
        here = one_machine(links)
        rows[median] = [here / cluster(links, nodes) for nodes in NODES]
        print(f"| {median:g} s | {here:,.0f} s | {' | '.join(f'{gain:.2f}' if gain < 10 else f'{gain:.1f}' for gain in rows[median])} |")
    if "--write" in sys.argv[1:]:
        (HERE.parent / "docs/images/cluster.svg").write_text(plot(rows))


if __name__ == "__main__":
    main()
