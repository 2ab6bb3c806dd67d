# Types of the native part; its docstrings are in the module itself. Kept honest by stubtest.

from collections.abc import Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Callable, Literal, Optional, TypedDict, TypeVar, Union, final

from ._idempotency import Idempotency

Seconds = Union[float, timedelta]
FenceQuality = Literal["none", "time-floored", "strict"]
Mode = Literal["mutex", "read", "write", "permits"]
TransactionDialect = Literal["postgres $1", "postgres ?", "postgres %s", "mysql ?", "mysql %s"]
Dialect = Union[Literal["sqlite ?", "sqlite ?1"], TransactionDialect]

_F = TypeVar("_F", bound=Callable[..., Any])
_Started = tuple[Any, Optional[UnderWayCall]]

class Capability(TypedDict):
    """What a store, as configured, can do."""

    backend: str
    fifo: bool
    push: bool
    expiry: bool
    sharing: bool
    atomic_sets: bool
    fencing: FenceQuality
    min_lease: int
    max_lease: int

class Detail(TypedDict):
    """One fact that only this kind of store has, for display."""

    name: str
    value: str

class _WithDetails(TypedDict, total=False):
    details: list[Detail]

class HolderView(_WithDetails):
    """One held lease. What the store cannot say is ``None``."""

    client: Optional[str]
    label: str
    mode: Mode
    permits: int
    owner_digest: str
    fencing_token: Optional[int]
    acquired_at_ms: Optional[int]
    held_for_ms: Optional[int]
    lease_ms: Optional[int]
    remaining_ms: Optional[int]
    renewals: Optional[int]
    renewed_ago_ms: Optional[int]
    renewed: Optional[bool]
    idle_ago_ms: Optional[int]

class WaiterView(TypedDict):
    """One waiter, in the order of the queue."""

    client: str
    label: str
    mode: Mode
    permits: int
    owner_digest: str
    position: int
    since_ms: int
    waited_ms: int
    silent: bool
    gives_up_at_ms: Optional[int]

class LockView(_WithDetails):
    """One lock: its holders and its waiters."""

    name: str
    mode: Literal["mutex", "rw", "semaphore", "foreign"]
    capacity: Optional[int]
    holders: list[HolderView]
    waiters: list[WaiterView]

class ClientView(TypedDict):
    """A client process that holds or waits."""

    id: str
    host: str
    pid: int
    process_started_at_ms: Optional[int]
    boot: Optional[str]
    pid_namespace: Optional[str]
    program: str
    language: str
    version: str
    seen_ago_ms: int

class AuditEntry(TypedDict):
    """One break of a lease: which, by whom, and why."""

    at_ms: int
    name: str
    fencing_token: int
    holder: str
    by: str
    reason: str

class Snapshot(TypedDict):
    """A store's locks at one moment."""

    backend: str
    taken_at_ms: int
    round_trip_ms: int
    requests: int
    locks: list[LockView]
    clients: list[ClientView]
    audit: list[AuditEntry]
    truncated: bool

class Broken(TypedDict):
    """A break that ended the lease."""

    outcome: Literal["broken"]
    holder: str
    next: Optional[str]

class Free(TypedDict):
    """A break that found the lock free."""

    outcome: Literal["free"]

class ChangedHands(TypedDict):
    """A break that found another holder, and left it alone."""

    outcome: Literal["changed_hands"]
    present: int

BreakResult = Union[Broken, Free, ChangedHands]

class RecordView(TypedDict):
    """The record of a key of idempotent work, without its result."""

    scope: str
    key: str
    is_token: bool
    state: Literal["running", "abandoned", "done", "failed", "too-large", "issued", "consumed"]
    client: str
    fence: int
    runs: int
    renewals: int
    fingerprint: str
    lease_ms: int
    lease_left_ms: int
    keep_left_ms: Optional[int]
    written_at_ms: int
    result_bytes: int
    version: int

class _EventBase(TypedDict):
    event: str
    level: Literal["debug", "info", "warn", "error"]
    message: str
    client: Optional[str]

class Event(_EventBase, total=False):
    """What happened to a lock or a store; which other keys there are depends on ``event``."""

    lock: str
    backend: str
    fencing_token: int
    position: int
    waited_ms: int
    held_ms: int
    renewals: int
    pushed: bool
    reason: str
    error: str
    leases: int
    which: str
    findings: str
    dropped: int

class Histogram(TypedDict):
    """How many durations fell into which range, in seconds."""

    bounds: list[float]
    counts: list[int]
    sum: float
    count: int

class Stats(TypedDict):
    """What one client has done since it was made."""

    backend: str
    wait: Histogram
    hold: Histogram
    renewal_lag: Histogram
    acquired: int
    refused: int
    timed_out: int
    failed: int
    cancelled: int
    waiting: int
    held: int
    losses: dict[str, int]
    errors: dict[str, int]

__version__: str

def connect(
    url: Optional[str] = None,
    *,
    program: Optional[str] = None,
    on_event: Optional[Callable[[Event], object]] = None,
    **options: Optional[Union[str, bool, Seconds]],
) -> Client: ...
def _start_connect(
    url: Optional[str],
    program: Optional[str],
    on_event: Optional[Callable[[Event], object]],
    options: Optional[dict[str, Any]],
) -> _Started: ...
def _close_all() -> None: ...
def _before_fork() -> None: ...
def _after_fork_in_parent() -> None: ...

@final
class UnderWayCall:
    def cancel(self) -> None: ...

@final
class Client:
    def lock(
        self,
        name: str,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
        keep_idle: Optional[Seconds] = None,
    ) -> Lock: ...
    def rw_lock(
        self,
        name: str,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> RwLock: ...
    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> Semaphore: ...
    def lock_all(
        self,
        names: Iterable[str],
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> LockAll: ...
    def idempotency(self, scope: str, *, encoding: str = "json") -> Idempotency: ...
    def _scope(self, scope: str) -> Scope: ...
    def inspect(
        self, name: Optional[str] = None, *, prefix: Optional[str] = None, limit: Optional[int] = None
    ) -> Snapshot: ...
    def break_lease(self, name: str, *, fencing_token: int, by: str, reason: str) -> BreakResult: ...
    def stats(self) -> Stats: ...
    def prometheus(self, labels: Optional[dict[str, str]] = None) -> str: ...
    def close(self) -> None: ...
    @property
    def id(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def capability(self) -> Capability: ...
    @property
    def closed(self) -> bool: ...
    def _start_close(self) -> _Started: ...
    def _start_inspect(
        self, name: Optional[str], prefix: Optional[str], limit: Optional[int]
    ) -> _Started: ...
    def _start_break_lease(self, name: str, fencing_token: int, by: str, reason: str) -> _Started: ...
    def __enter__(self) -> Client: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Lock:
    @property
    def name(self) -> str: ...
    def acquire(self) -> Guard: ...
    def try_acquire(self) -> Optional[Guard]: ...
    def _start_acquire(self) -> _Started: ...
    def _start_try_acquire(self) -> _Started: ...
    def __enter__(self) -> Guard: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None: ...
    def __call__(self, function: _F) -> _F: ...

@final
class RwLock:
    @property
    def name(self) -> str: ...
    def read(self) -> Lock: ...
    def write(self) -> Lock: ...

@final
class Semaphore:
    @property
    def name(self) -> str: ...
    def permits(self, count: int = 1) -> Lock: ...
    def acquire(self, count: int = 1) -> Guard: ...
    def try_acquire(self, count: int = 1) -> Optional[Guard]: ...

@final
class LockAll:
    @property
    def names(self) -> list[str]: ...
    def acquire(self) -> GuardSet: ...
    def try_acquire(self) -> Optional[GuardSet]: ...
    def _start_acquire(self) -> _Started: ...
    def _start_try_acquire(self) -> _Started: ...
    def __enter__(self) -> GuardSet: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None: ...
    def __call__(self, function: _F) -> _F: ...

@final
class Guard:
    @property
    def name(self) -> str: ...
    @property
    def fencing_token(self) -> int: ...
    @property
    def fence_quality(self) -> FenceQuality: ...
    @property
    def sequencer(self) -> str: ...
    @property
    def valid_until(self) -> float: ...
    @property
    def remaining(self) -> float: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def renewals(self) -> int: ...
    @property
    def mode(self) -> Mode: ...
    def check(self) -> None: ...
    @property
    def lost(self) -> Lost: ...
    def on_lost(self, callback: Callable[[str], object]) -> None: ...
    def beat(self) -> None: ...
    def release(self) -> None: ...
    def extend(self, lease: Seconds) -> float: ...
    def downgrade(self) -> None: ...
    def try_upgrade(self) -> bool: ...
    def _start_release(self) -> _Started: ...
    def _start_extend(self, lease: Seconds) -> _Started: ...
    def _start_downgrade(self) -> _Started: ...
    def _start_try_upgrade(self) -> _Started: ...
    def __enter__(self) -> Guard: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None: ...

@final
class GuardSet:
    @property
    def fencing_tokens(self) -> dict[str, int]: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def remaining(self) -> float: ...
    def check(self) -> None: ...
    @property
    def lost(self) -> Lost: ...
    def beat(self) -> None: ...
    def release(self) -> None: ...
    def _start_release(self) -> _Started: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> GuardSet: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None: ...

@final
class Claim:
    @property
    def fencing_token(self) -> int: ...
    @property
    def runs(self) -> int: ...
    @property
    def remaining(self) -> float: ...
    @property
    def is_held(self) -> bool: ...
    @property
    def _under_way(self) -> bool: ...
    def check(self) -> None: ...
    def on_lost(self, callback: Callable[[str], object]) -> None: ...
    def wait_lost(self, timeout: Optional[Seconds] = None) -> Optional[str]: ...
    def _start_wait_lost(self) -> _Started: ...
    def _complete(self, result: bytes) -> None: ...
    def _fail(self, answer: bytes, fate: Optional[str]) -> None: ...
    def _start_complete(self, result: bytes) -> _Started: ...
    def _start_fail(self, answer: bytes, fate: Optional[str]) -> _Started: ...
    def _abandon(self) -> None: ...

_Begun = tuple[Optional[Claim], Optional[bytes], Optional[Any]]

@final
class Scope:
    @property
    def name(self) -> str: ...
    def begin(self, key: str, options: Optional[dict[str, Any]]) -> _Begun: ...
    def start_begin(self, key: str, options: Optional[dict[str, Any]]) -> _Started: ...
    def forget(self, key: str) -> Literal["forgotten", "absent", "running"]: ...
    def start_forget(self, key: str) -> _Started: ...
    def show(self, key: str) -> Optional[RecordView]: ...
    def start_show(self, key: str) -> _Started: ...
    def issue(self, ttl: Seconds) -> str: ...
    def start_issue(self, ttl: Seconds) -> _Started: ...
    def consume(self, token: str) -> Literal["first", "duplicate", "unknown"]: ...
    def start_consume(self, token: str) -> _Started: ...

@final
class Lost:
    def is_set(self) -> bool: ...
    @property
    def reason(self) -> Optional[str]: ...
    def wait(self, timeout: Optional[Seconds] = None) -> bool: ...
    def _start_wait(self) -> _Started: ...

@final
class TokenGate:
    def __new__(cls, largest: Optional[int] = None) -> TokenGate: ...
    def admit(self, fencing_token: int) -> None: ...
    @property
    def largest(self) -> Optional[int]: ...

@final
class Sequencer:
    def __new__(cls, text: str) -> Sequencer: ...
    @property
    def name(self) -> str: ...
    @property
    def holder(self) -> Optional[str]: ...
    @property
    def fencing_token(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class FencedUpdate:
    @staticmethod
    def update(
        dialect: Dialect,
        table: str,
        fence_column: str,
        set_columns: Sequence[str],
        key_columns: Sequence[str],
    ) -> FencedUpdate: ...
    @staticmethod
    def upsert(
        dialect: Dialect,
        table: str,
        fence_column: str,
        set_columns: Sequence[str],
        key_columns: Sequence[str],
    ) -> FencedUpdate: ...
    @property
    def sql(self) -> str: ...
    @property
    def parameters(self) -> list[str]: ...
    @property
    def probe_sql(self) -> str: ...
    @property
    def probe_parameters(self) -> list[str]: ...
    @property
    def rows_tell(self) -> bool: ...
    @staticmethod
    def why_unchanged(
        fencing_token: int, row: Optional[Sequence[Any]]
    ) -> Literal["missing", "changed_meanwhile"]: ...
    @staticmethod
    def check(fencing_token: int, row: Optional[Sequence[Any]]) -> None: ...

@final
class VersionedUpdate:
    @staticmethod
    def update(
        dialect: Dialect,
        table: str,
        version_column: str,
        set_columns: Sequence[str],
        key_columns: Sequence[str],
    ) -> VersionedUpdate: ...
    @property
    def sql(self) -> str: ...
    @property
    def parameters(self) -> list[str]: ...
    @property
    def probe_sql(self) -> str: ...
    @property
    def probe_parameters(self) -> list[str]: ...
    @staticmethod
    def why_unchanged(row: Optional[Sequence[Any]]) -> Literal["missing", "changed"]: ...

@final
class ConditionalUpdate:
    @staticmethod
    def update(
        dialect: Dialect,
        table: str,
        changes: Sequence[tuple[str, Literal["=", "+", "-"]]],
        conditions: Sequence[tuple[str, Literal["=", "<>", "<", "<=", ">", ">="]]],
        key_columns: Sequence[str],
    ) -> ConditionalUpdate: ...
    @property
    def sql(self) -> str: ...
    @property
    def parameters(self) -> list[str]: ...
    @property
    def probe_sql(self) -> str: ...
    @property
    def probe_parameters(self) -> list[str]: ...

@final
class TransactionLock:
    def __new__(
        cls, dialect: TransactionDialect, name: str, schema: Optional[str] = None
    ) -> TransactionLock: ...
    @property
    def name(self) -> str: ...
    @property
    def prepare_sql(self) -> Optional[str]: ...
    @property
    def prepare_values(self) -> list[str]: ...
    @property
    def take_sql(self) -> str: ...
    @property
    def take_values(self) -> list[str]: ...
    @property
    def fence_sql(self) -> Optional[str]: ...

@final
class TransactionClaim:
    @property
    def fencing_token(self) -> int: ...
    @property
    def runs(self) -> int: ...
    def _finished(self) -> list[tuple[str, bytes]]: ...
    def _step(self, name: str, value: bytes) -> SqlTalk: ...
    def _renew(self) -> SqlTalk: ...
    def _release(self) -> SqlTalk: ...
    def _complete(self, result: bytes) -> SqlTalk: ...
    def _fail(self, answer: bytes) -> SqlTalk: ...

@final
class SqlTalk:
    def next(self, rows: Sequence[Any]) -> Optional[tuple[str, tuple[Any, ...]]]: ...
    def end(self) -> tuple[Any, Any, Any, int]: ...

@final
class SqlRun:
    def claim(self) -> SqlTalk: ...
    def in_progress(self) -> Any: ...

@final
class SqlRuns:
    def __new__(cls, dialect: Dialect, schema: Optional[str]) -> SqlRuns: ...
    def schema_sql(self) -> str: ...
    def run(self, scope: str, key: str, options: dict[str, Any]) -> SqlRun: ...
    def steps(self, scope: str, key: str, options: dict[str, Any]) -> SqlRun: ...
    def purge(self, most: int) -> SqlTalk: ...
    def says_in_progress(self, code: str) -> bool: ...
