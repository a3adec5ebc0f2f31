"""`make cpus`: Python for 64-bit ARM, which QEMU runs: Debian's, and what Treadle and its tests import, in a folder.

    python tests/aarch64.py FOLDER

Nothing is installed into the system. `FOLDER/root` holds Debian's packages, unpacked, `FOLDER/site` the wheels and this package.
Where one of them cannot be had, it says so, and there is no folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = f"python3.{sys.version_info.minor}"  # this one's: wheels and native code are shared with it
WHEELS = ("numpy", "numba", "msgpack", "platformdirs", "tqdm", "onnx", "ml_dtypes")
TEST_WHEELS = ("pytest", "pytest-timeout", "hypothesis", "scikit-learn")
GLIBC = range(17, 37)  # minor versions that wheels may be made for: manylinux2014's to that of Debian 12

# APT's settings: its own lists, no packages that are installed already, and no root needed
SETTINGS = """
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
"""


def run(command: list[str], **environment: str) -> None:
    """Raises CalledProcessError, with what the command printed."""
    subprocess.run(command, check=True, env=os.environ | environment, capture_output=True, text=True, errors="replace")


def unpack_debian(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-apt-") as name:
        apt = Path(name)
        for part in ("lists/partial", "archives/partial"):
            (apt / part).mkdir(parents=True)
        (apt / "status").touch()
        settings = apt / "settings"
        settings.write_text(SETTINGS.format(folder=apt))
        packages = [f"{PYTHON}-minimal", f"lib{PYTHON}-stdlib", "libstdc++6"]
        run(["apt-get", "update"], APT_CONFIG=str(settings))
        run(["apt-get", "--yes", "--download-only", "install", *packages], APT_CONFIG=str(settings))
        for package in sorted((apt / "archives").glob("*.deb")):
            run(["dpkg-deb", "--extract", str(package), str(folder)])


def unpack_wheels(folder: Path) -> None:
    """In the versions that this Python has."""
    platforms = ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in GLIBC)]
    wheels = [f"{name}=={metadata.version(name)}" for name in (*WHEELS, *TEST_WHEELS)]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
    ]
    for platform in platforms:
        options += ["--platform", platform]
    run([sys.executable, "-m", "pip", "install", *options, *wheels])
    (folder / "treadle").symlink_to(ROOT)


def main() -> int:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-aarch64-", dir=folder.parent) as name:
            new = Path(name) / folder.name
            new.mkdir()
            unpack_debian(new / "root")
            unpack_wheels(new / "site")
            new.rename(folder)
    except FileNotFoundError as error:
        print(f"there will be no ARM: {error.filename} is not here (Debian has it)", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:]
        print(f"there will be no ARM: {' '.join(error.cmd[:2])} … failed: {' '.join(last)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
