"""Does what the README's section "The first lock" says, as a reader would, and says how long that takes. See `run`."""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 180  # seconds of reading and typing, from the first line of the README to a held lock
# An ordinary reader and an ordinary typist; a program is copied.
WORDS_A_MINUTE = 230
KEYS_A_MINUTE = 200
SECONDS_OF_A_PASTE = 10

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"^# the program below goes to (\S+)$", re.MULTILINE)


class Section:
    """What the README says about one language."""

    def __init__(self, name, text, read_before):
        self.name = name
        blocks = BLOCK.findall(text)
        script = next((body for language, body in blocks if language == "sh"), None)
        self.commands = [] if script is None else [line for line in script.splitlines() if line[:1] not in ("", "#")]
        self.place = None if script is None else PLACE.search(script)
        self.program = next((body for language, body in blocks if language != "sh"), None)
        if self.commands and (self.place is None) != (self.program is None):
            raise SystemExit(f"{name}: a program needs a line that says where it goes, and that line needs a program")
        words = len(read_before.split()) + len(text.split())
        self.reading = 60 * words / WORDS_A_MINUTE
        self.typing = 60 * sum(len(line) + 1 for line in self.commands) / KEYS_A_MINUTE
        if self.program:
            self.typing += SECONDS_OF_A_PASTE


def sections():
    readme = (ROOT / "README.md").read_text()
    before, rest = re.split(r"^## The first lock\n", readme, flags=re.MULTILINE)
    intro = rest.split("<details", 1)[0]
    for details in re.findall(r"^<details.*?^</details>", rest, re.MULTILINE | re.DOTALL):
        name = re.search(r"<b>(.*?)</b>", details)[1].split()[0].lower()
        section = Section(name, details, before + intro)
        if section.commands:
            yield section


class Machine:
    """Where the commands run: the clone, and for each language a home with nothing in it."""

    def __init__(self, options):
        self.options = options
        self.clone = ROOT
        self.instead = {}
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TMPDIR": str(options.scratch),
        }
        # Compilers and interpreters in the home of the user, and caches of what was downloaded.
        home = Path.home()
        for name, folder in {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv"}.items():
            if name in os.environ or (home / folder).is_dir():
                self.environment[name] = os.environ.get(name, str(home / folder))
        self.environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(home / ".cache"))
        self.environment["MAVEN_OPTS"] = f"-Dmaven.repo.local={home / '.m2/repository'}"
        for name in ("RUSTC", "RUSTDOC", "CARGO_ZIGBUILD_ZIG_PATH", "CARGO_INCREMENTAL", "POLYLATCH_TEST_RUN"):
            if name in os.environ:
                self.environment[name] = os.environ[name]
        if options.as_written:
            self.copy_the_clone()
        else:
            self.use_what_is_built()

    def copy_the_clone(self):
        self.clone = self.options.scratch / "polylatch"
        self.clone.mkdir()
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
        )
        names = [name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).exists()]
        subprocess.run(["cp", "--parents", "-t", str(self.clone), *names], cwd=ROOT, check=True)
        self.environment["CARGO_TARGET_DIR"] = str(self.options.target / "first-lock")

    def use_what_is_built(self):
        packages = Path(os.environ.get("POLYLATCH_PACKAGES", "/nothing"))
        for wheel in (packages / "python").glob("*.whl"):
            self.instead["./bindings/python"] = str(wheel)
        if (packages / "node/packages").is_dir():
            self.environment["POLYLATCH_NODE_PACKAGES"] = str(packages / "node/packages")
        if os.environ.get("POLYLATCH_UNIFFI_BUILT"):
            self.environment["POLYLATCH_UNIFFI_BUILT"] = "yes"
            # Beside this, others may use what it would put away.
            self.instead["bindings/uniffi/build"] = "true"
        self.environment["CARGO_TARGET_DIR"] = str(self.options.target)
        self.instead["cargo install --locked --path inspector/cli"] = f"cp '{os.environ['POLYLATCH_PROGRAM']}' ~/.bin/"

    def run(self, command, home, **more):
        for words, others in self.instead.items():
            command = command.replace(words, others)
        # What cargo installs would go to the compiler's own folder.
        environment = {
            **self.environment,
            "HOME": str(home),
            "CARGO_INSTALL_ROOT": str(home / ".cargo-install"),
            "PATH": f"{home}/.cargo-install/bin:{home}/.bin:{self.environment['PATH']}",
            **more,
        }
        print(f"$ {command}", flush=True)
        begun = time.monotonic()
        done = subprocess.run(["bash", "-euc", command], cwd=self.clone, env=environment, capture_output=True, text=True)
        took = time.monotonic() - begun
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}\nthe README says to type this, and it fails: {command}")
        return done.stdout, took


def trial(section, machine):
    """Plays one section; returns the seconds of the machine before the last command, and of that one."""
    home = machine.options.scratch / section.name
    (home / ".bin").mkdir(parents=True)
    *preparations, last = section.commands
    before = sum(machine.run(command, home)[1] for command in preparations)
    if section.program:
        place = Path(section.place[1].replace("~", str(home), 1))
        if place.is_relative_to(home) and place.parent.is_dir():
            place.write_text(section.program)
        else:
            raise SystemExit(f"{section.name}: the commands made no folder for {section.place[1]}")
    printed, took = machine.run(last, home)
    for store in ("the default store", "Redis"):
        print(f"  {store}: {printed.strip()}")
        if not re.search(r"^write with token \d+n?$", printed, re.MULTILINE):
            raise SystemExit(f"{section.name}: no lock was held: {printed!r}")
        if store != "Redis" and section.name != "rust":  # which names its store
            printed, _ = machine.run(last, home, POLYLATCH_URL=machine.options.redis)
        else:
            break
    return before, took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--as-written", action="store_true")
    parser.add_argument("languages", nargs="*")
    options = parser.parse_args()
    known = {section.name: section for section in sections()}
    expected = {"python", "node", "rust", "java", "ruby", "shell"}
    if not expected <= known.keys():
        sys.exit(f"the README has no first lock in {', '.join(sorted(expected - known.keys()))}")
    if unknown := set(options.languages) - known.keys():
        sys.exit(f"the README has no commands for {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    machine = Machine(options)
    # That of Rust is compiled and run as a documentation test; to compile the crate again takes a minute.
    rows = []
    wanted = options.languages or [name for name in known if name != "rust" or options.as_written]
    for name in wanted:
        section = known[name]
        print(f"\n--- {name}")
        before, took = trial(section, machine)
        by_hand = section.reading + section.typing
        rows.append(
            f"{name:6}  reading {section.reading:.0f} s, typing {section.typing:.0f} s, in all {by_hand:.0f} s;"
            f" machine: {before:.0f} s before the last command, which took {took:.1f} s"
        )
        print(rows[-1])
        if by_hand > LIMIT:
            sys.exit(f"{name}: {by_hand:.0f} s of reading and typing; {LIMIT} s is the limit")
    print("\n=== first lock", *rows, sep="\n")


main()
