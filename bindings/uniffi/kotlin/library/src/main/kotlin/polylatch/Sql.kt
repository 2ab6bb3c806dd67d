package polylatch

import polylatch.ffi.BoundText
import polylatch.ffi.ColumnSign
import polylatch.ffi.WriteTexts
import polylatch.ffi.conditionalWrite
import polylatch.ffi.fencedAccepted
import polylatch.ffi.fencedUnchanged
import polylatch.ffi.fencedWrite
import polylatch.ffi.transactionLockTexts
import polylatch.ffi.versionedUnchanged
import polylatch.ffi.versionedWrite
import polylatch.ffi.ProbedRow as NativeRow

/**
 * What a driver wants: the database and its sign for a value. These are JDBC's; the others are `sqlite ?1`, `postgres $1`,
 * `postgres %s` and `mysql %s`.
 */
public object Dialect {
    /** SQLite. */
    public const val SQLITE: String = "sqlite ?"
    /** PostgreSQL. */
    public const val POSTGRES: String = "postgres ?"

    /** MariaDB too. */
    public const val MYSQL: String = "mysql ?"
}

/** A column, and what a write does to it (`=`, `+`, `-`) or how it is compared (`=`, `<>`, `<`, `<=`, `>`, `>=`). */
public data class Term(public val column: String, public val operator: String) {
    internal fun native() = ColumnSign(column, operator)
}

/** The row that a probe found, by the number in its only column; null is `NULL`. */
public data class ProbedRow(public val number: Long?) {
    internal fun native() = NativeRow(number)
}

/**
 * The texts of a write. It sends nothing: execute [sql] with the values of [parameters], and see how many rows were changed.
 * Names are checked and quoted: `[A-Za-z_][A-Za-z0-9_]{0,62}`; values are bound.
 */
public abstract class GuardedWrite internal constructor(texts: WriteTexts) {
    /** The text to execute. */
    public val sql: String = texts.sql

    /** Which value each parameter is, in order: by column, or by column and operator, such as `stock >=`. */
    public val parameters: List<String> = texts.parameters

    /** A query for why no row was changed. */
    public val probeSql: String = texts.probeSql

    /** Which column's value each parameter of the probe is. */
    public val probeParameters: List<String> = texts.probeParameters

    override fun toString(): String = "${javaClass.simpleName}($sql)"
}

/**
 * A conditional write to one row of an SQL table that keeps the largest fencing token seen: comparison and write are one
 * statement. The table needs a column such as `fence BIGINT NOT NULL DEFAULT 0`; do not delete rows that late writers may
 * still want to write. One changed row: done. None: ask with [probeSql], and [whyUnchanged].
 */
public class FencedUpdate private constructor(texts: WriteTexts) : GuardedWrite(texts) {
    /**
     * Whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB:
     * ask with the probe each time, and [check] its row.
     */
    public val rowsTell: Boolean = texts.rowsTell

    public companion object {
        /** Writes to a row that exists. Without columns to set it only raises the token. */
        @JvmStatic
        public fun update(
            dialect: String,
            table: String,
            fenceColumn: String,
            setColumns: List<String>,
            keyColumns: List<String>,
        ): FencedUpdate = FencedUpdate(told { fencedWrite(false, dialect, table, fenceColumn, setColumns, keyColumns) })

        /** Writes to a row, or inserts it if it is missing; the key columns need a unique index. */
        @JvmStatic
        public fun upsert(
            dialect: String,
            table: String,
            fenceColumn: String,
            setColumns: List<String>,
            keyColumns: List<String>,
        ): FencedUpdate = FencedUpdate(told { fencedWrite(true, dialect, table, fenceColumn, setColumns, keyColumns) })

        /**
         * Explains a write that changed no row by the row that the probe found, or null for none: `missing`, or
         * `changed_meanwhile` if it is worth writing again. Throws [StaleTokenException] if a newer holder wrote before.
         */
        @JvmStatic
        public fun whyUnchanged(token: Long, row: ProbedRow?): String = told { fencedUnchanged(token, row?.native()) }

        /**
         * Reads what the probe found after a write whose number of rows says nothing. Throws [StaleTokenException] if the
         * row keeps a newer token.
         */
        @JvmStatic
        public fun check(token: Long, row: ProbedRow?): Unit = told { fencedAccepted(token, row?.native()) }
    }
}

/**
 * A write to one row that is refused if the row was written since its version was read, and that raises the version by one
 * (optimistic locking). It needs no lock. One changed row: done. None: read the row again, and decide what to write now.
 */
public class VersionedUpdate private constructor(texts: WriteTexts) : GuardedWrite(texts) {
    public companion object {
        /** Writes to a row that exists. Without columns to set it only raises the version. */
        @JvmStatic
        public fun update(
            dialect: String,
            table: String,
            versionColumn: String,
            setColumns: List<String>,
            keyColumns: List<String>,
        ): VersionedUpdate = VersionedUpdate(told { versionedWrite(dialect, table, versionColumn, setColumns, keyColumns) })

        /** Explains a write that changed no row by the row that the probe found, or null for none: `missing` or `changed`. */
        @JvmStatic
        public fun whyUnchanged(row: ProbedRow?): String = told { versionedUnchanged(row?.native()) }
    }
}

/**
 * A write to one row that happens only while the row fulfils conditions, such as `stock >= 3`: what is left cannot be sold
 * twice. It needs no lock. One changed row: done. None: a condition is not fulfilled, or there is no such row.
 */
public class ConditionalUpdate private constructor(texts: WriteTexts) : GuardedWrite(texts) {
    public companion object {
        /** Makes a write of [changes] to the row with these keys, while all [conditions] hold. */
        @JvmStatic
        public fun update(
            dialect: String,
            table: String,
            changes: List<Term>,
            conditions: List<Term>,
            keyColumns: List<String>,
        ): ConditionalUpdate = ConditionalUpdate(
            told { conditionalWrite(dialect, table, changes.map(Term::native), conditions.map(Term::native), keyColumns) },
        )
    }
}

/** A statement with the values of its parameters, in order. */
public class BoundStatement internal constructor(text: BoundText) {
    /** The text to execute. */
    public val sql: String = text.sql
    /** The values of its parameters, in order. */
    public val values: List<String> = text.values
}

/**
 * A lock inside a transaction of the caller, on the caller's connection to the database that keeps the locks. It excludes
 * every holder of a lease on that name and other such transactions; the server frees it at the commit, at the rollback, and
 * when the connection ends. It sends nothing; the caller executes:
 *
 * 1. MySQL and MariaDB: [prepare], before the transaction.
 * 2. [take], first in the transaction. One row (PostgreSQL: returned, MySQL and MariaDB: changed) means taken. No row: a client
 *    holds a lease or waits for one; roll back at once.
 * 3. The fencing token is in the row; on MySQL and MariaDB [fence] reads it.
 *
 * Keep the transaction short, well below the `timeout` of the clients. Take several locks in the order of their names.
 * [schema] is that of the store on PostgreSQL.
 */
public class TransactionLock @JvmOverloads constructor(dialect: String, public val name: String, schema: String? = null) {
    private val texts = told { transactionLockTexts(dialect, name, schema) }

    /** Null where nothing is needed. */
    public val prepare: BoundStatement? = texts.prepare?.let(::BoundStatement)
    /** Takes the lock. */
    public val take: BoundStatement = BoundStatement(texts.take)

    /** Null where [take] returns the token. */
    public val fence: BoundStatement? = texts.fence?.let(::BoundStatement)
}
