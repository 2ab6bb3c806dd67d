"""The package as a whole: what `help()` shows, what it exports, what its README and samples do."""

import ast
import inspect
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typing_sample
from conftest import REPOSITORY, wait_until, waiters

import polylatch
import polylatch.asgi
import polylatch.metrics

README = (REPOSITORY / "bindings/python/README.md").read_text()


def test_the_version_is_the_workspaces():
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    assert f'version = "{polylatch.__version__}"' in manifest


def test_everything_that_is_exported_exists_and_says_what_it_does():
    exports = [(polylatch, name) for name in polylatch.__all__ if name != "__version__"]
    for module in (polylatch.asgi, polylatch.metrics):
        assert inspect.getdoc(module), module.__name__
        own = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__
        ]
        exports += [(module, name) for name in own if not name.startswith("_")]
    assert len(exports) > 50
    for module, name in exports:
        value = getattr(module, name)
        assert inspect.getdoc(value), name
        if not inspect.isclass(value):
            continue
        for attribute, member in vars(value).items():
            is_method = inspect.isroutine(member) or isinstance(member, (property, classmethod, staticmethod))
            if not attribute.startswith("_") and (is_method or not issubclass(value, Exception)):
                assert inspect.getdoc(member), f"{name}.{attribute}"


def test_every_dict_that_only_the_types_name_says_what_it_is():
    stub = Path(polylatch.__file__).with_name("_polylatch.pyi").read_text()
    classes = [node for node in ast.parse(stub).body if isinstance(node, ast.ClassDef)]
    dicts = [node for node in classes if node.bases and not node.name.startswith("_")]
    assert len(dicts) > 10
    for node in dicts:
        assert ast.get_docstring(node), node.name


def test_importing_loads_no_asyncio_before_it_is_wanted():
    code = """if True:
        import sys, polylatch
        assert "asyncio" not in sys.modules
        assert "AsyncClient" in dir(polylatch)
        from polylatch import *
        assert connect_async is polylatch.connect_async and AsyncGuard
        try:
            polylatch.nonsense
        except AttributeError as error:
            assert "nonsense" in str(error)
    """
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_help_shows_the_options_of_a_lock():
    for method in (polylatch.Client.lock, polylatch.AsyncClient.lock):
        assert list(inspect.signature(method).parameters) == [
            "self",
            "name",
            "lease",
            "wait",
            "label",
            "owner",
            "max_hold",
            "beat_every",
            "fifo",
            "renew",
            "keep_idle",
        ]


def test_both_worlds_have_the_same_methods():
    for name in ("Client", "Lock", "RwLock", "Semaphore", "LockAll", "Guard", "GuardSet", "Lost"):
        native, twin = getattr(polylatch, name), getattr(polylatch, f"Async{name}")

        def public(kind):
            return {attribute for attribute in vars(kind) if not attribute.startswith("_")}

        assert public(native) == public(twin), name


def test_a_snapshot_has_the_keys_that_its_types_say(client, name):
    stub = Path(polylatch.__file__).with_name("_polylatch.pyi").read_text()
    keys = {
        node.name: {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
        for node in ast.parse(stub).body
        if isinstance(node, ast.ClassDef)
    }

    def check(kind, told):
        assert set(told) - {"details"} == keys[kind] - {"details"}, kind

    held = client.lock(name, label="one").acquire()
    waiting = threading.Thread(target=lambda: client.lock(name).acquire().release())
    waiting.start()
    wait_until(lambda: waiters(client, name) == 1 and client.inspect(name)["clients"], "it is all there")
    snapshot = client.inspect(name)
    check("Snapshot", snapshot)
    check("LockView", snapshot["locks"][0])
    check("HolderView", snapshot["locks"][0]["holders"][0])
    check("WaiterView", snapshot["locks"][0]["waiters"][0])
    check("ClientView", snapshot["clients"][0])
    check("Capability", client.capability)
    check("Stats", client.stats())
    check("Histogram", client.stats()["wait"])
    broken = client.break_lease(name, fencing_token=held.fencing_token, by="me", reason="a test")
    check("Broken", broken)
    waiting.join()
    check("AuditEntry", client.inspect(name)["audit"][0])


def test_the_types_sample_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("POLYLATCH_URL", f"sqlite:{tmp_path / 'default.sqlite'}")
    typing_sample.threads()
    typing_sample.asyncio.run(typing_sample.tasks())
    with polylatch.connect("memory:") as client, client.lock("a"):
        assert typing_sample.errors(client).startswith("wait_timeout caller_decides none")


def test_without_a_url_the_environment_or_the_state_directory_says_where(monkeypatch, tmp_path):
    monkeypatch.delenv("POLYLATCH_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with polylatch.connect() as client:
        assert str(tmp_path) in client.url
    monkeypatch.setenv("POLYLATCH_URL", "memory:")
    with polylatch.connect() as client:
        assert client.url.startswith("memory:")


def test_the_code_in_the_projects_readme_runs(shared_redis):
    (block,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    environment = {**os.environ, "POLYLATCH_URL": shared_redis.url}
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"write with token \d+\n", done.stdout)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_code_in_the_readme_runs(block, tmp_path):
    environment = {**os.environ, "POLYLATCH_URL": f"sqlite:{tmp_path / 'readme.sqlite'}"}
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def blocks_of_the_guide():
    for page in sorted((REPOSITORY / "core/docs").rglob("*.md")):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(blocks, 1):
            yield pytest.param(block, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("block", list(blocks_of_the_guide()))
def test_the_code_in_the_guide_runs(block, tmp_path, shared_redis):
    block = block.replace("redis://localhost", shared_redis.url)
    environment = {**os.environ, "POLYLATCH_URL": f"sqlite:{tmp_path / 'guide.sqlite'}"}
    command = [sys.executable, "-W", "error", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
