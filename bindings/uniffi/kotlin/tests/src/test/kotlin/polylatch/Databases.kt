package polylatch.tests

import polylatch.Dialect
import polylatch.TransactionRuns
import java.nio.file.Files
import java.sql.Connection
import java.sql.DriverManager

/** The databases of a program, by the drivers that programs use; `bindings/uniffi/test` starts the servers. */
enum class Database(val dialect: String, val table: String) {
    POSTGRES(Dialect.POSTGRES, "polylatch.idempotency"),
    MARIADB(Dialect.MYSQL, "polylatch_idempotency"),

    /** Its driver, on the same server. */
    MYSQL(Dialect.MYSQL, "polylatch_idempotency"),
    SQLITE(Dialect.SQLITE, "polylatch_idempotency"),
    ;

    /** Of the store in the same database. */
    val store: String?
        get() = when (this) {
            POSTGRES -> "postgres://postgres@127.0.0.1:${port("POSTGRES")}/postgres"
            MARIADB, MYSQL -> "mariadb://root@127.0.0.1:${port("MARIADB")}/locks"
            SQLITE -> null
        }

    val url: String by lazy {
        when (this) {
            POSTGRES -> "jdbc:postgresql://127.0.0.1:${port("POSTGRES")}/postgres?user=postgres"
            MARIADB -> "jdbc:mariadb://127.0.0.1:${port("MARIADB")}/locks?user=root"
            MYSQL -> "jdbc:mysql://127.0.0.1:${port("MARIADB")}/locks?user=root&sslMode=DISABLED&allowMultiQueries=true"
            SQLITE -> {
                val folder = Files.createTempDirectory("polylatch").toFile()
                Runtime.getRuntime().addShutdownHook(Thread { folder.deleteRecursively() })
                "jdbc:sqlite:$folder/app.db?transaction_mode=IMMEDIATE&busy_timeout=30000&journal_mode=WAL"
            }
        }
    }

    /** With the tables of the library and of the program. */
    val runs: TransactionRuns by lazy {
        val made = TransactionRuns(dialect)
        connect().use { connection ->
            // A client makes the tables too, on this server.
            if (this == MARIADB) on(store!!) {} else repeat(2) { connection.execute(made.schemaSql) }
            connection.execute("CREATE TABLE IF NOT EXISTS effects (work VARCHAR(99))")
        }
        made
    }

    fun connect(): Connection = DriverManager.getConnection(url)

    private fun port(server: String) =
        checkNotNull(System.getenv("POLYLATCH_${server}_PORT")) { "bindings/uniffi/test starts databases" }
}

fun Connection.execute(sql: String) {
    createStatement().use { it.executeUpdate(sql) }
}

/** As a framework has it: commits, or rolls back. */
fun <T> Connection.transaction(work: () -> T): T {
    autoCommit = false
    val done = try {
        work()
    } catch (error: Throwable) {
        rollback()
        throw error
    }
    commit()
    return done
}

/** What the work of the program changes. */
fun Connection.effect(work: String) = execute("INSERT INTO effects VALUES ('$work')")

fun Connection.strings(sql: String): List<String> = createStatement().use { statement ->
    statement.executeQuery(sql).use { rows -> buildList { while (rows.next()) add(rows.getString(1)) } }
}

fun Connection.effects(work: String): Int = strings("SELECT work FROM effects WHERE work = '$work'").size
