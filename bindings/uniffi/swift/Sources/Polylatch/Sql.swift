import PolylatchNative

/// A database and the sign of its driver for a value.
public struct Dialect: RawRepresentable, Hashable, Sendable {
    /// The name of the dialect, the same in every language.
    public let rawValue: String

    /// Any other dialect by its name, such as `postgres %s`.
    public init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// SQLite, with `?`.
    public static let sqlite = Dialect(rawValue: "sqlite ?")
    /// SQLite, with `?1`.
    public static let sqliteNumbered = Dialect(rawValue: "sqlite ?1")
    /// PostgreSQL, with `$1`.
    public static let postgres = Dialect(rawValue: "postgres $1")
    /// PostgreSQL, with `?`.
    public static let postgresPlain = Dialect(rawValue: "postgres ?")
    /// MariaDB too.
    public static let mysql = Dialect(rawValue: "mysql ?")
}

/// A column, and what a write does to it (`=`, `+`, `-`) or how it is compared (`=`, `<>`, `<`, `<=`, `>`, `>=`).
public struct Term: Hashable, Sendable {
    /// The column.
    public let column: String
    /// The operator.
    public let sign: String

    /// A column and its operator.
    public init(_ column: String, _ sign: String) {
        self.column = column
        self.sign = sign
    }

    var native: ColumnSign { ColumnSign(column: column, sign: sign) }
}

/// The row that a probe found, by the number in its only column; nil is `NULL`.
public struct ProbedRow: Hashable, Sendable {
    /// The number in its only column.
    public let number: Int64?

    /// The row with this number.
    public init(number: Int64?) {
        self.number = number
    }

    var native: PolylatchNative.ProbedRow { PolylatchNative.ProbedRow(number: number) }
}

/// The texts of a write. It sends nothing: execute `sql` with the values of `parameters`, and see how many rows were changed.
/// Names are checked and quoted: `[A-Za-z_][A-Za-z0-9_]{0,62}`; values are bound.
public struct GuardedWrite: Hashable, Sendable {
    /// The text to execute.
    public let sql: String
    /// Which value each parameter is, in order: by column, or by column and operator, such as `stock >=`.
    public let parameters: [String]
    /// A query for why no row was changed.
    public let probeSql: String
    /// Which column's value each parameter of the probe is.
    public let probeParameters: [String]
    /// Whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB: ask
    /// with the probe each time, and give its row to `FencedUpdate.check`.
    public let rowsTell: Bool

    fileprivate init(_ texts: WriteTexts) {
        sql = texts.sql
        parameters = texts.parameters
        probeSql = texts.probeSql
        probeParameters = texts.probeParameters
        rowsTell = texts.rowsTell
    }
}

/// Conditional writes to one row of an SQL table that keeps the largest fencing token seen: comparison and write are one
/// statement. The table needs a column such as `fence BIGINT NOT NULL DEFAULT 0`; do not delete rows that late writers may
/// still want to write. One changed row: done. None: ask with the probe, and `whyUnchanged`.
public enum FencedUpdate {
    /// Writes to a row that exists. Without columns to set it only raises the token.
    public static func update(
        _ dialect: Dialect, table: String, fence: String, set: [String], keys: [String]
    ) throws -> GuardedWrite {
        try write(inserts: false, dialect, table, fence, set, keys)
    }

    /// Writes to a row, or inserts it if it is missing; the keys need a unique index.
    public static func upsert(
        _ dialect: Dialect, table: String, fence: String, set: [String], keys: [String]
    ) throws -> GuardedWrite {
        try write(inserts: true, dialect, table, fence, set, keys)
    }

    private static func write(
        inserts: Bool, _ dialect: Dialect, _ table: String, _ fence: String, _ set: [String], _ keys: [String]
    ) throws -> GuardedWrite {
        try told {
            GuardedWrite(
                try fencedWrite(
                    inserts: inserts, dialect: dialect.rawValue, table: table, fenceColumn: fence, setColumns: set,
                    keyColumns: keys))
        }
    }

    /// Explains a write that changed no row by the row that the probe found, or nil for none: `missing`, or
    /// `changed_meanwhile` if it is worth writing again. Throws `stale_token` if a newer holder wrote before.
    public static func whyUnchanged(token: Int64, row: ProbedRow?) throws -> String {
        try told { try fencedUnchanged(number: token, row: row?.native) }
    }

    /// Reads what the probe found after a write whose number of rows says nothing. Throws `stale_token` if the row keeps a
    /// newer token.
    public static func check(token: Int64, row: ProbedRow?) throws {
        try told { try fencedAccepted(number: token, row: row?.native) }
    }
}

/// Writes to one row that are refused if the row was written since its version was read, and that raise the version by one
/// (optimistic locking). They need no lock. One changed row: done. None: read the row again, and decide what to write now.
public enum VersionedUpdate {
    /// Writes to a row that exists. Without columns to set it only raises the version.
    public static func update(
        _ dialect: Dialect, table: String, version: String, set: [String], keys: [String]
    ) throws -> GuardedWrite {
        try told {
            GuardedWrite(
                try versionedWrite(
                    dialect: dialect.rawValue, table: table, versionColumn: version, setColumns: set, keyColumns: keys))
        }
    }

    /// Explains a write that changed no row by the row that the probe found, or nil for none: `missing` or `changed`.
    public static func whyUnchanged(row: ProbedRow?) -> String {
        versionedUnchanged(row: row?.native)
    }
}

/// Writes to one row that happen only while the row fulfils conditions, such as `stock >= 3`: what is left cannot be sold
/// twice. They need no lock. One changed row: done. None: a condition is not fulfilled, or there is no such row.
public enum ConditionalUpdate {
    /// Makes a write of `changes` to the row with these keys, while all `conditions` hold.
    public static func update(
        _ dialect: Dialect, table: String, changes: [Term], conditions: [Term], keys: [String]
    ) throws -> GuardedWrite {
        try told {
            GuardedWrite(
                try conditionalWrite(
                    dialect: dialect.rawValue, table: table, changes: changes.map(\.native),
                    conditions: conditions.map(\.native), keyColumns: keys))
        }
    }
}

/// A statement with the values of its parameters, in order.
public struct BoundStatement: Hashable, Sendable {
    /// The text to execute.
    public let sql: String
    /// The values of its parameters, in order.
    public let values: [String]

    fileprivate init(_ text: BoundText) {
        sql = text.sql
        values = text.values
    }
}

/// A lock inside a transaction of the caller, on the caller's connection to the database that keeps the locks. It excludes
/// every holder of a lease on that name and other such transactions; the server frees it at the commit, at the rollback, and
/// when the connection ends. It sends nothing; the caller executes:
///
/// 1. MySQL and MariaDB: `prepare`, before the transaction.
/// 2. `take`, first in the transaction. One row (PostgreSQL: returned, MySQL and MariaDB: changed) means taken. No row: a client
///    holds a lease or waits for one; roll back at once.
/// 3. The fencing token is in the row; on MySQL and MariaDB `fence` reads it.
///
/// Keep the transaction short, well below the `timeout` of the clients. Take several locks in the order of their names.
public struct TransactionLock: Hashable, Sendable {
    /// The name of the lock.
    public let name: String
    /// Nil where nothing is needed.
    public let prepare: BoundStatement?
    /// Takes the lock.
    public let take: BoundStatement
    /// Nil where `take` returns the token.
    public let fence: BoundStatement?

    /// `schema` is that of the store on PostgreSQL.
    public init(_ dialect: Dialect, name: String, schema: String? = nil) throws {
        let texts = try told { try transactionLockTexts(dialect: dialect.rawValue, name: name, schema: schema) }
        self.name = name
        prepare = texts.prepare.map(BoundStatement.init)
        take = BoundStatement(texts.take)
        fence = texts.fence.map(BoundStatement.init)
    }
}
