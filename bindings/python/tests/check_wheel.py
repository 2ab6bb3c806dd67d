"""Checks a built wheel: name, size, contents, metadata. `check_wheel.py WHEEL MAX_BYTES CARGO_TOML`."""

import email
import re
import sys
import zipfile
from pathlib import Path

MODULE = ("polylatch/_polylatch.abi3.so", "polylatch/_polylatch.pyd")
SOURCES = Path(__file__).resolve().parent.parent / "python" / "polylatch"

wheel, most, cargo = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
version = re.search(r'^version = "(.*)"', cargo.read_text(), re.MULTILINE).group(1)

# One wheel for every Python from 3.9 on.
assert wheel.name.startswith(f"polylatch-{version}-cp39-abi3-"), wheel.name
size = wheel.stat().st_size
assert size <= most, f"{wheel.name} has {size} bytes, more than {most}"

with zipfile.ZipFile(wheel) as archive:
    names = set(archive.namelist())
    info = f"polylatch-{version}.dist-info"
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    licence = archive.read(f"{info}/licenses/LICENSE")
    notices = archive.read(f"{info}/licenses/THIRD-PARTY-NOTICES.txt").decode()
    record = archive.read(f"{info}/RECORD").decode()
    materials = archive.read(f"{info}/sboms/polylatch.cdx.json").decode()
    telling = [name for name in names if bytes(cargo.resolve().parent) in archive.read(name)]

native = names & set(MODULE)
assert len(native) == 1, native
expected = {f"polylatch/{source.name}" for source in SOURCES.iterdir() if source.name != "__pycache__"}
package = {name for name in names if not name.startswith(f"{info}/")}
assert package == expected | native, package ^ (expected | native)
assert [name for name in names if "/sboms/" in name] == [f"{info}/sboms/polylatch.cdx.json"], names
assert '"name": "SQLite"' in materials, "the C code is among the materials"
assert "serialNumber" not in materials, "the same is packed to the same bytes"
assert not telling, f"the folder in which it was built stands in {telling}"
assert licence == cargo.with_name("LICENSE").read_bytes(), "the licence is not the project's"
assert "libsqlite3-sys" in notices and "Apache License" in notices, "the licences of what is compiled in"
assert all(name in record for name in names), "a file is not in RECORD"

assert metadata["Name"] == "polylatch"
assert metadata["Version"] == version
assert metadata["Requires-Python"] == ">=3.9"
assert metadata["License-Expression"] == "MIT OR Apache-2.0"
assert metadata.get_all("License-File") == ["LICENSE", "THIRD-PARTY-NOTICES.txt"]
assert metadata.get_all("Requires-Dist") is None, "there are no runtime dependencies"
assert metadata["Description-Content-Type"].startswith("text/markdown")
readme = metadata.get_payload()
assert readme.startswith("# polylatch") and "```python" in readme
print(f"{wheel.name}: {size / 1e6:.2f} MB, {len(names)} files")
