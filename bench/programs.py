# SPDX-License-Identifier: GPL-2.0-only
"""The programs of programs.sh: where they are, and what they read, which is made once and kept in the cache.

	postgres, pgbench                             a data folder that pgbench has filled
	cc1                                           a preprocessed file of libbpf
	x264                                          a raw clip
"""
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NEEDED = {"nginx": ["nginx", "wrk"], "redis": ["redis-server", "redis-benchmark"],
          "postgres": ["postgres", "pgbench", "initdb", "pg_config"], "cc1": ["cc1"], "build": ["cc1"], "x264": ["x264"]}
ONLY_HERE = ["initdb", "pg_config"]
GUEST = "/root/programs"
SCALE = 4  # 400000 accounts
CLIP = 320, 192, 120  # width, height, frames
ROOT = Path(__file__).resolve().parent.parent


def folders():
    """Where programs are that may be in no folder of PATH; PostgreSQL's newest first."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    compiler = shutil.which("gcc") and subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, text=True).stdout
    places = [*map(str, versions), *os.environ["PATH"].split(":"), "/usr/sbin", "/sbin", os.path.dirname(compiler or "")]
    return [place for place in places if place]


def which(name):
    return shutil.which(name, path=":".join(folders()))


def missing(chosen):
    return [name for of in chosen for name in NEEDED.get(of, []) if not which(name)]


def data(chosen, cache):
    """The folder with what they read."""
    for name, make in (("postgres", postgres), ("cc1", source), ("build", source), ("x264", clip)):
        if name in chosen:
            make(cache)
    return cache


def carried(chosen, cache):
    """For vm/run --carry. A link's name is what the program goes by."""
    programs = [name for of in chosen for name in NEEDED.get(of, []) if name not in ONLY_HERE]
    files = [f"{which(name)}:/usr/local/bin/{name}" for name in programs]
    if "postgres" in chosen:
        share = output("pg_config", "--sharedir") + "/timezonesets"
        files.append(f"{share}:{share}")
    for name, part in (("postgres", "postgres"), ("cc1", "source.i"), ("build", "source.i"), ("x264", "clip.yuv")):
        if name in chosen:
            files.append(f"{(data([name], cache) / part).resolve()}:{GUEST}/{part}")
    return list(dict.fromkeys(files))


def output(name, *arguments, **how):
    return subprocess.run([which(name), *arguments], stdout=subprocess.PIPE, text=True, check=True, **how).stdout.strip()


def kept(cache, name, version, make):
    """The file or folder `cache`/`name`, a link to what make(path) made for that version."""
    cache.mkdir(parents=True, exist_ok=True)
    made, link = cache / f"{version}-{name}", cache / name
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=cache) as work:
            make(Path(work, "new"))
            os.rename(f"{work}/new", made)
    if not link.is_symlink() or os.readlink(link) != made.name:
        link.unlink(missing_ok=True)
        link.symlink_to(made.name)


def postgres(cache):
    version = output("postgres", "--version").split()[2]
    kept(cache, "postgres", f"{version}-{SCALE}", fill)


def fill(target):
    """The server refuses to be root: then nobody makes the folder, where it may."""
    nobody = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="bench.") as work:
        if nobody:
            shutil.chown(work, "nobody")
        folder = f"{work}/data"
        how = {**nobody, "cwd": work, "env": {**os.environ, "LC_ALL": "C"}}
        output("initdb", "-D", folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--wal-segsize=1", "-N", **how)
        with open(f"{folder}/postgresql.conf", "a") as settings:
            settings.write("timezone = 'GMT'\nlog_timezone = 'GMT'\n")
        server = [which("postgres"), "-D", folder, "-k", work, "-c", "listen_addresses=", "-c", "fsync=off"]
        with open(f"{work}/log", "w") as log, subprocess.Popen(server, stderr=log, **how) as running:
            try:
                state = Path(folder, "postmaster.pid")
                while not state.exists() or "ready" not in state.read_text():
                    if running.poll() is not None:
                        raise SystemExit(f"bench: postgres: {Path(work, 'log').read_text()}")
                    time.sleep(0.1)
                output("pgbench", "-h", work, "-U", "postgres", "-i", "-q", "-s", str(SCALE), "postgres", stderr=subprocess.DEVNULL)
            finally:
                running.send_signal(signal.SIGINT)
        shutil.copytree(folder, target)


def source(cache):
    """A file of the libbpf that the scheduler is built with."""
    host = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout.split("host: ")[1].split()[0]
    listed = subprocess.run(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host],
                            cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    crate = next(package for package in json.loads(listed)["packages"] if package["name"] == "libbpf-sys")
    libbpf = Path(crate["manifest_path"]).parent / "libbpf"
    version = f"{crate['version']}-gcc-{output('gcc', '-dumpfullversion')}"
    kept(cache, "source.i", version, lambda target: output(
        "gcc", "-E", "-P", "-O2", f"-I{libbpf}/include", f"-I{libbpf}/include/uapi", libbpf / "src/nlattr.c", "-o", target))


def clip(cache):
    kept(cache, "clip.yuv", "x".join(map(str, CLIP)), draw)


def draw(target):
    """A picture of noise in blocks that the camera moves over, and a square that moves its own way."""
    width, height, frames = CLIP
    chance = random.Random(1)
    blocks = [[chance.randrange(30, 220) for _ in range(width // 4)] for _ in range(height // 4)]
    picture = [bytes(blocks[y // 8][x // 8] + chance.randrange(16) for x in range(2 * width)) for y in range(2 * height)]
    with open(target, "wb") as file:
        for nr in range(frames):
            rows = [bytearray(row[2 * nr:2 * nr + width]) for row in picture[nr:nr + height]]
            for row in rows[nr:nr + 64]:
                row[2 * nr:2 * nr + 64] = bytes(range(64, 128))
            file.write(b"".join(rows) + bytes([128]) * (width * height // 2))
