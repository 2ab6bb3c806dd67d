package polylatch.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import polylatch.Dialect;
import polylatch.InvalidArgumentException;
import polylatch.Outcome;
import polylatch.PayloadMismatchException;
import polylatch.RunOptions;
import polylatch.StepsAttempt;
import polylatch.TransactionRunOptions;
import polylatch.TransactionRuns;
import polylatch.TransactionStepsOptions;
import polylatch.blocking.Client;

/** The same as a program in Java writes it. */
class TransactionsInJavaTest {
    private final TransactionRuns runs = new TransactionRuns(Dialect.SQLITE);
    private final String key = UUID.randomUUID().toString();

    private static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(sql);
        }
    }

    private Connection connection() throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:");
        execute(connection, runs.getSchemaSql());
        execute(connection, "CREATE TABLE orders (name TEXT)");
        return connection;
    }

    @Test
    void workIsDoneOnceAndItsAnswerIsRepeated() throws Exception {
        try (Connection connection = connection()) {
            assertThrows(InvalidArgumentException.class, () -> runs.runText(connection, "orders/7", key, claim -> "no"));
            connection.setAutoCommit(false);
            TransactionRunOptions options = new TransactionRunOptions()
                    .payload("2 apples".getBytes(StandardCharsets.UTF_8))
                    .retention(Duration.ofHours(1));
            for (boolean replayed : new boolean[] {false, true}) {
                Outcome<String> outcome = runs.runText(connection, "orders/7", key, options, claim -> {
                    execute(connection, "INSERT INTO orders VALUES ('two')"); // throws SQLException
                    return "order " + claim.getRuns();
                });
                connection.commit();
                assertEquals("order 1", outcome.getValue());
                assertEquals(replayed, outcome.getReplayed());
            }
            TransactionRunOptions other = options.payload(new byte[0]).keepForever().noWait();
            assertThrows(PayloadMismatchException.class, () -> runs.begin(connection, "orders/7", key, other));
            connection.rollback();
            assertArrayEquals(new byte[] {1}, runs.run(connection, "bytes", key, claim -> new byte[] {1}).getValue());
            connection.rollback();
        }
    }

    @Test
    void aClientsRunHasOptionsToo() throws Exception {
        try (Client client = Client.connect("memory:" + key)) {
            RunOptions options = new RunOptions().payload(new byte[] {1}).lease(Duration.ofSeconds(1));
            assertEquals("done", client.idempotency("orders/7").runText(key, options, claim -> "done").getValue());
        }
    }

    @Test
    void stepsGoOnAfterTheLastCommit() throws SQLException {
        try (Connection connection = connection()) {
            connection.setAutoCommit(false);
            TransactionStepsOptions options = new TransactionStepsOptions().lease(Duration.ofMinutes(1)).fingerprint("f");
            StepsAttempt attempt = runs.steps("orders/7", key, options).claim(connection);
            connection.commit();
            attempt = attempt.step(connection, "charge", "receipt 7").step(connection, "count");
            connection.commit();
            assertEquals("receipt 7", attempt.text("charge"));
            assertFalse(attempt.getReplayed());
            attempt.complete(connection, "done");
            connection.commit();
            StepsAttempt again = runs.steps("orders/7", key, options).claim(connection);
            assertTrue(again.getReplayed());
            assertEquals("done", again.getText());
            assertEquals(0, runs.purge(connection));
        }
    }
}
