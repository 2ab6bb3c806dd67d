"""Database servers with throw-away data, and connections to them by the drivers that applications use."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pymysql
from conftest import wait_until

# Servers refuse to run as root.
NOBODY = 65534


class Server:
    """A server on a free loopback port, in a folder that belongs to the user as whom it runs."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="polylatch-database-"))
        self.owner = {}
        if os.geteuid() == 0:
            shutil.chown(self.folder, NOBODY, NOBODY)
            self.owner = {"user": NOBODY, "group": NOBODY}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.data = self.folder / "data"
        self.process = None

    def run(self, *command):
        subprocess.run([*map(str, command)], check=True, capture_output=True, **self.where())

    def start(self, *command):
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*map(str, command)], stdout=log, stderr=subprocess.STDOUT, **self.where()
            )
        wait_until(self.answers, f"the server answers, see {self.folder}/log")

    def where(self):
        return {"cwd": self.folder, "env": {**os.environ, "TMPDIR": str(self.folder)}, **self.owner}

    def answers(self):
        with contextlib.suppress(psycopg.OperationalError, pymysql.OperationalError):
            self.connect().close()
            return True
        assert self.process.poll() is None, (self.folder / "log").read_text()
        return False

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder)


class Postgres(Server):
    dialect = "postgres %s"

    def __init__(self):
        super().__init__()
        programs = os.environ.get("POLYLATCH_TEST_POSTGRES")
        if not programs:
            programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))[-1].parent
        programs = Path(programs)
        self.run(
            programs / "initdb", "-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-D", self.data
        )
        self.start(
            *(programs / "postgres", "-D", self.data, "-F", "-h", "127.0.0.1", "-p", self.port, "-k", "")
        )
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def connect(self):
        return psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", dbname="postgres")


class Mariadb(Server):
    dialect = "mysql %s"

    def __init__(self):
        super().__init__()
        programs = os.environ.get("POLYLATCH_TEST_MARIADB")
        program = Path(programs) / "mariadbd" if programs else Path("/usr/sbin/mariadbd")
        self.data.mkdir()
        if self.owner:
            shutil.chown(self.data, NOBODY, NOBODY)
        # Without the tables of users, which take seconds to make.
        self.start(
            *(program, "--no-defaults", "--skip-grant-tables", f"--datadir={self.data}"),
            *("--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.folder}/socket"),
            *("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"),
        )
        with self.connect("") as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE locks")
        self.url = f"mariadb://root@127.0.0.1:{self.port}/locks"

    def answers(self):
        with contextlib.suppress(pymysql.OperationalError):
            self.connect("").close()
            return True
        assert self.process.poll() is None, (self.folder / "log").read_text()
        return False

    def connect(self, database="locks"):
        # A row that was found with the same values counts.
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database or None,
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
        )
