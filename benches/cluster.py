#!/usr/bin/env python3
"""Measures the cost of device links on other machines (docs/dev/measurements.md): time and bytes of a job, through Slurm and SSH on this
machine (tests/cluster/cluster.sh; needs root and `make setup-cluster`), compared with the same links here.

usage: cluster.py [--write]     --write: writes the figures into benches/cluster.json, which cluster-simulation.py reads
RUNS: the rounds of each pair (default: 15); OFFLD: the program (default: target/release/offld)
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LLVM = "/usr/lib/llvm-22/bin"
RUNS = int(os.environ.get("RUNS", "15"))
OFFLD = os.environ.get("OFFLD", str(HERE.parent / "target/release/offld"))
# Functions in the linked program: few show the overhead of a job, many show its transfers and its time.
SIZES = [3, 30, 300, 1200]
SRUN = "srun -Q -n1 -c{threads} --mem={mem}M"
# A launcher that records how many bytes are in a link's directory before its job, and how many the job adds.
COUNT = """#!/bin/sh
for script; do :; done
folder=${script%/*/run}
before=$(find "$folder" -type f -printf '%s\\n' | awk '{ sum += $1 } END { print sum + 0 }')
"$@"; status=$?
after=$(find "$folder" -type f -printf '%s\\n' | awk '{ sum += $1 } END { print sum + 0 }')
echo "$before $((after - before))" >> "${0%/*}/bytes"
exit $status
"""


def source(functions, unit, units):
    """Returns a translation unit of OpenMP device code with its share of the functions."""
    lines = []
    for f in range(unit, functions, units):
        lines.append(f"__attribute__((noinline)) static int g{f}(int a, int b) {{ int s = {f + 1}; for (int i = 0; i < (a & 63); ++i) "
                     f"s = s * 31 + ((b >> (i & 7)) ^ (s / (i + {f % 13 + 1}))); return s; }}")
        lines.append(f"void f{f}(int *x) {{\n#pragma omp target map(tofrom: x[0:64])\n"
                     f"  for (int i = 1; i < 64; ++i) x[i] = g{f}(x[i - 1], x[i]);\n}}")
    return "\n".join(lines) + f"\nint unit{unit};\n"


class Link:
    """The compiled objects of a library for an AMD GPU, and their link."""

    def __init__(self, work, functions):
        self.folder = work / f"functions-{functions}"
        self.folder.mkdir()
        units = 3 if functions < 30 else 6
        for unit in range(units):
            (self.folder / f"u{unit}.c").write_text(source(functions, unit, units))
        self.objects = [f"u{unit}.o" for unit in range(units)]
        compile_one = [f"{LLVM}/clang", "-O2", "-fopenmp", "-nogpulib", "--offload-arch=gfx90a", "-foffload-lto=full", "-fPIC", "-c"]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in pool.map(lambda u: subprocess.run([*compile_one, f"u{u}.c"], cwd=self.folder), range(units)):
                done.check_returncode()

    def run(self, links, environment, launcher, cache="off"):
        """Links the library and returns the time in seconds."""
        command = [f"{links}/clang-linker-wrapper", "--host-triple=x86_64-unknown-linux-gnu", "-shared", "-o", "out",
                 f"--linker-path={LLVM}/ld.lld", "--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all", *self.objects]
        environment = {**environment, "OFFLD_CLANG": f"{LLVM}/clang", "OFFLD_CACHE": str(cache), "OFFLD_LAUNCHER": launcher}
        since = time.perf_counter()
        ended = subprocess.run(command, cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True)
        took = time.perf_counter() - since
        if ended.returncode or "warning:" in ended.stderr:
            sys.exit(f"bench: the link with the launcher '{launcher}' failed, status {ended.returncode}\n{ended.stderr}")
        return took


def paired(one, two):
    """Returns the medians of both, and the median of their differences within each round. The first round does not count."""
    rounds = [(one(), two()) for _ in range(RUNS + 1)][1:]
    medians = [statistics.median(side) for side in zip(*rounds)]
    return (*medians, statistics.median(b - a for a, b in rounds))


def start_cluster(folder):
    """Starts the cluster, which stops when its stdin is closed."""
    script = subprocess.Popen([HERE.parent / "tests/cluster/cluster.sh", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, start_new_session=True)
    answer = script.stdout.readline().strip()
    if answer != "ready":
        sys.exit(f"bench: cannot start the cluster: {answer}\n{script.stdout.read()}")
    return script


def measure(work, cluster):
    """Measures all figures, prints them as tables, and returns them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OFFLD_")}
    environment.update(SLURM_CONF=str(cluster / "slurm.conf"), LC_ALL="C")
    links = work / "links"
    subprocess.run([OFFLD, "links", links], check=True, stdout=subprocess.DEVNULL)
    ssh = f"ssh -F {cluster}/ssh_config"
    ways = {
        "env": ("the script of a job alone (`env`)", "env"),
        "slurm": ("Slurm (`srun`)", SRUN),
        "ssh": ("SSH, a connection each", f"{ssh} far"),
        "ssh_master": ("SSH, one connection (`ControlMaster`)", f"{ssh} -o ControlMaster=auto -o ControlPath={cluster}/%C -o ControlPersist=60 far"),
    }
    small = Link(work, SIZES[0])
    figures = {"overhead": {}, "sizes": []}
    print("| a small link | here | by the launcher | longer |\n|---|--:|--:|--:|")
    for name, (title, launcher) in ways.items():
        here, there, longer = paired(lambda: small.run(links, environment, ""), lambda: small.run(links, environment, launcher))
        figures["overhead"][name] = round(longer, 4)
        print(f"| {title} | {here * 1000:.0f} ms | {there * 1000:.0f} ms | {longer * 1000:.0f} ms |", flush=True)
    subprocess.run([*ssh.split(), "-O", "exit", "-o", f"ControlPath={cluster}/%C", "far"], stderr=subprocess.DEVNULL)

    count = work / "count"
    count.write_text(COUNT)
    count.chmod(0o755)
    print("\n| functions | device link here | to the job | from the job |\n|--:|--:|--:|--:|")
    for functions in SIZES:
        link = small if functions == SIZES[0] else Link(work, functions)
        # The warm link is a cache hit, so the difference of the two times is the device link.
        cache = link.folder / "cache"
        cold = statistics.median(link.run(links, environment, "") for _ in range(3))
        link.run(links, environment, "", cache)
        warm = statistics.median(link.run(links, environment, "", cache) for _ in range(3))
        link.run(links, environment, str(count))
        moved = [int(word) for word in (work / "bytes").read_text().split()]
        (work / "bytes").unlink()
        figures["sizes"].append({"functions": functions, "seconds": round(cold - warm, 3), "to_job": moved[0], "from_job": moved[1]})
        print(f"| {functions} | {cold - warm:.2f} s | {moved[0] / 1000:.0f} kB | {moved[1] / 1000:.0f} kB |", flush=True)

    # The number of jobs that the controller starts per second, with as many at once as offld's maximum.
    jobs = 200
    since = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        one = lambda _: subprocess.run(["srun", "-Q", "-n1", "--mem=1M", "true"], env=environment, check=True)
        list(pool.map(one, range(jobs)))
    figures["jobs_per_second"] = round(jobs / (time.perf_counter() - since), 1)
    print(f"\nSlurm's controller and two nodes on this machine run {figures['jobs_per_second']:.0f} empty jobs per second.")
    return figures


def main():
    if not pathlib.Path(OFFLD).is_file() or not shutil.which("srun"):
        sys.exit("bench: offld or srun not found: run `make build setup-cluster` as root")
    with tempfile.TemporaryDirectory(prefix="offld-bench-") as folder:
        cluster = pathlib.Path(folder) / "cluster"
        script = start_cluster(cluster)
        try:
            figures = measure(pathlib.Path(folder), cluster)
        finally:
            script.stdin.close()
            script.wait()
    if "--write" in sys.argv[1:]:
        (HERE / "cluster.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
