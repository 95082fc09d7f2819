"""Runs a command on a kernel of its own: Debian's, in QEMU, over this machine's files, which it cannot change.

    python -m tests.own_kernel FOLDER python -m pytest tests/executors/local/test_limits.py

Needs `qemu-system-x86_64`, `busybox` (its static form) and, in FOLDER, an unpacked kernel package (`boot/vmlinuz-*`,
`lib/modules/*`). The guest sees no network and writes to memory only; its cgroup v2 has every controller.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

MEMORY_MB = 6144
#: Emulated: slow, and the same on every machine. $QEMU_ACCELERATOR=kvm is quick where it works.
ACCELERATOR = os.environ.get("QEMU_ACCELERATOR", "tcg,thread=multi")
#: What tests there know of it.
TOLD = {"SPRINGTIDE_LIMITS": "required", "SPRINGTIDE_TEST_PATIENCE_S": "1200"}
#: What the guest prints last; its exit code cannot be had otherwise.
VERDICT = "own kernel: exit code "
#: For disks and files of the host; each with what it needs itself.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /host /fresh /whole
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
for module in $(busybox cat /modules); do busybox insmod $module; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=mmap,msize=1048576 host /host || busybox poweroff -f
busybox mount -t tmpfs -o size=3g fresh /fresh
busybox mkdir /fresh/up /fresh/work
busybox mount -t overlay -o lowerdir=/host,upperdir=/fresh/up,workdir=/fresh/work overlay /whole
for place in proc sys dev run tmp; do busybox mkdir -p /whole/$place; done
busybox mount -t proc proc /whole/proc
busybox mount -t sysfs sysfs /whole/sys
busybox mount -t devtmpfs dev /whole/dev
busybox mkdir -p /whole/dev/shm /whole/dev/pts
busybox mount -t tmpfs shm /whole/dev/shm
busybox mount -t devpts pts /whole/dev/pts
busybox mount -t tmpfs run /whole/run
busybox mount -t tmpfs tmp /whole/tmp
busybox mount -t cgroup2 cgroup /whole/sys/fs/cgroup
busybox ip link set lo up
busybox chroot /whole /bin/sh /{script}
echo "{verdict}$?"
busybox poweroff -f
"""


def find_kernel(folder: Path) -> tuple[Path, Path]:
    """The kernel and the folder of its modules in an unpacked package."""
    kernels = sorted(folder.glob("boot/vmlinuz-*"))
    if not kernels:
        sys.exit(f"{folder} holds no boot/vmlinuz-*; unpack a kernel there: dpkg -x linux-image-*.deb {folder}")
    version = kernels[-1].name.removeprefix("vmlinuz-")
    return kernels[-1], folder / "lib" / "modules" / version


def list_modules(modules: Path) -> Iterator[Path]:
    """The files of the modules that the guest loads, each after those it needs; some kernels have them built in."""
    subprocess.run(["depmod", "-b", modules.parents[2], modules.name], check=True)
    needs = dict(line.split(":", 1) for line in (modules / "modules.dep").read_text().splitlines())
    seen: set[str] = set()
    for name in MODULES:
        for path in (path for path in needs if Path(path).name.split(".")[0] == name):
            for one in (*reversed(needs[path].split()), path):
                if one not in seen:
                    seen.add(one)
                    yield modules / one


def pack(folder: Path, modules: Path, script: str) -> Path:
    """The guest's first file system: a shell, the modules, and what it does."""
    tree = folder / "initramfs"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "busybox").write_bytes(Path("/bin/busybox").read_bytes())
    names = []
    for file in list_modules(modules):
        names.append(f"/{file.name.split('.')[0]}.ko")
        data = subprocess.check_output(["xz", "-dc", file]) if file.suffix == ".xz" else file.read_bytes()
        (tree / names[-1][1:]).write_bytes(data)
    (tree / "modules").write_text("\n".join(names))
    (tree / "init").write_text(INIT.format(script=script.lstrip("/"), verdict=VERDICT))
    for path in (tree / "bin" / "busybox", tree / "init"):
        path.chmod(0o755)
    listed = subprocess.run(["find", "."], cwd=tree, check=True, capture_output=True).stdout
    packed = folder / "initramfs.cpio"
    with packed.open("wb") as archive:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=listed, stdout=archive, check=True)
    return packed


def write_script(folder: Path, words: Sequence[str]) -> Path:
    """What the guest runs, in this folder and with this environment's path."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in {**kept, **TOLD}.items()]
    script = folder / "run.sh"
    script.write_text("\n".join([*exports, f"cd {shlex.quote(str(Path.cwd()))}", shlex.join(words)]) + "\n")
    return script


def boot(kernel: Path, initramfs: Path) -> int:
    """Run the guest, show what it prints, and give the exit code of its command."""
    command = [
        *("qemu-system-x86_64", "-machine", "q35", "-m", str(MEMORY_MB), "-smp", "2", "-nographic", "-no-reboot"),
        *("-accel", ACCELERATOR, "-cpu", "max"),
        *("-nic", "none", "-device", "virtio-rng-pci", "-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", "console=ttyS0 quiet panic=-1 rdinit=/init"),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
    ]
    code = 1
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace"
    ) as guest:
        assert guest.stdout is not None
        for line in guest.stdout:
            print(line, end="", flush=True)
            if VERDICT in line:
                code = int(line.split(VERDICT)[1].split()[0])
    return code


def main() -> None:
    """Run a command there, and end as it ends."""
    source, words = Path(sys.argv[1]), sys.argv[2:]
    kernel, modules = find_kernel(source)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        sys.exit(boot(kernel, pack(folder, modules, str(write_script(folder, words)))))


if __name__ == "__main__":
    main()
