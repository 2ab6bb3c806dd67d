package polylatch

import polylatch.ffi.NativeRunClaim
import polylatch.ffi.NativeTalk
import polylatch.ffi.SqlCell
import polylatch.ffi.SqlText
import java.math.BigDecimal
import java.math.BigInteger
import java.sql.Blob
import java.sql.Connection
import java.sql.PreparedStatement
import java.sql.ResultSet
import java.sql.Types

/** What came of the statements of one call. */
internal class Found(val claim: NativeRunClaim?, val answer: ByteArray?, val deleted: Long)

/** Executes on the caller's connection what is asked for, until it is over. */
internal fun carryOut(connection: Connection, talk: NativeTalk): Found = talk.use {
    var rows = emptyList<List<SqlCell>>()
    while (true) {
        val asked = told { talk.nextStatement(rows) } ?: break
        rows = execute(connection, asked)
    }
    val end = talk.ending()
    end.failure?.let { throw WorkFailedException(it, end.answer ?: ByteArray(0)) }
    Found(if (end.mine) told { talk.claimed() } else null, end.answer, end.deleted)
}

/** The connection, which must have a transaction. */
internal fun inTransaction(connection: Connection): Connection {
    if (!connection.autoCommit) return connection
    throw refused(
        "the connection is in autocommit mode, so work and record would be committed one by one; " +
            "call setAutoCommit(false) before, and commit or roll back afterwards",
    )
}

/** The error of a caller's mistake; nothing was sent. */
internal fun refused(text: String): PolylatchException = exceptionOf(ownFault("invalid_argument", text, "none"))

private fun execute(connection: Connection, asked: SqlText): List<List<SqlCell>> =
    connection.prepareStatement(asked.sql).use { statement ->
        asked.values.forEachIndexed { at, value -> bind(statement, at + 1, value) }
        if (statement.execute()) statement.resultSet.use(::rows) else emptyList()
    }

private fun bind(statement: PreparedStatement, at: Int, value: SqlCell) {
    val (number, text, bytes) = value
    when {
        number != null -> statement.setLong(at, number)
        text != null -> statement.setString(at, text)
        bytes != null -> statement.setBytes(at, bytes)
        else -> statement.setNull(at, Types.NULL)
    }
}

private fun rows(found: ResultSet): List<List<SqlCell>> {
    val columns = 1..found.metaData.columnCount
    return buildList {
        while (found.next()) add(columns.map { column -> cell(found.getObject(column)) })
    }
}

private fun cell(value: Any?): SqlCell = when (value) {
    null -> SqlCell(null, null, null)
    is Long, is Int, is Short -> SqlCell((value as Number).toLong(), null, null)
    // Unsigned columns, and sums.
    is BigInteger -> SqlCell(value.longValueExact(), null, null)
    is BigDecimal -> SqlCell(value.longValueExact(), null, null)
    is String -> SqlCell(null, value, null)
    is ByteArray -> SqlCell(null, null, value)
    // As MariaDB's driver returns bytes.
    is Blob -> SqlCell(null, null, value.getBytes(1, value.length().toInt()))
    else -> throw IllegalStateException(
        "the driver returned a column of the class ${value.javaClass.name}; whole numbers, texts, bytes and NULL are expected",
    )
}
