package polylatch.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import polylatch.Dialect;
import polylatch.StepsAttempt;
import polylatch.TransactionRunOptions;
import polylatch.TransactionRuns;
import polylatch.blocking.Client;
import polylatch.blocking.Guard;
import polylatch.servlet.IdempotencyFilter;

/** The programs in Java of the package's page and of the guide as they stand there; the project's tests compare them. */
class PageInJavaTest {
    /** The annotation of Spring, which does no more here than to be there. */
    @Retention(RetentionPolicy.SOURCE)
    @interface Bean {
    }

    private final String url = System.getenv("POLYLATCH_TEST_REDIS");
    private final int order = 42;
    private final String receipt = "r-1";
    private final TransactionRuns runs = new TransactionRuns(Dialect.SQLITE);
    private final String key = UUID.randomUUID().toString();
    private final byte[] body = "a book".getBytes(StandardCharsets.UTF_8);
    private long written;
    private int charged;

    private void write(int order, long token) {
        written = token;
    }

    private void charge(Connection connection) {
        charged += 1;
    }

    private static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(sql);
        }
    }

    private static void insertOrder(Connection connection) throws SQLException {
        execute(connection, "INSERT INTO orders_of_the_guide VALUES (42)");
    }

    @Test
    void aFirstLock() throws Exception {
        try (Client client = Client.connect(url);
             Guard guard = client.lock("orders/42").lease(Duration.ofSeconds(30)).acquire()) {
            write(order, guard.getFencingToken());
        }
        assertTrue(written > 0);
    }

    @Test
    void workInSteps() throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite::memory:")) {
            execute(connection, runs.getSchemaSql());
            connection.setAutoCommit(false);
            for (int turn = 0; turn < 2; turn++) {
                StepsAttempt work = runs.steps("orders/customer-7", key).claim(connection);
                connection.commit();
                if (!work.getReplayed()) {
                    if (work.text("charge") == null) {
                        charge(connection);
                        work = work.step(connection, "charge", receipt); // StaleTokenException: another client goes on
                        connection.commit();
                    }
                    work.complete(connection, "{\"order\": 42}");
                    connection.commit();
                }
            }
        }
        assertEquals(1, charged);
    }

    @Test
    void workInATransactionOfTheGuide() throws Exception {
        String database = "jdbc:postgresql://127.0.0.1:" + System.getenv("POLYLATCH_POSTGRES_PORT") + "/postgres?user=postgres";
        try (Connection connection = DriverManager.getConnection(database)) {
            execute(connection, new TransactionRuns(Dialect.POSTGRES).getSchemaSql());
            execute(connection, "DROP TABLE IF EXISTS orders_of_the_guide; CREATE TABLE orders_of_the_guide (item BIGINT)");
            for (int turn = 0; turn < 2; turn++) {
                TransactionRuns runs = new TransactionRuns(Dialect.POSTGRES);
                connection.setAutoCommit(false);
                try {
                    runs.runText(connection, "orders/customer-7", key, new TransactionRunOptions().payload(body), claim -> {
                        insertOrder(connection);
                        return "{\"order\": 42}";
                    });
                    connection.commit(); // the work and its record, or neither
                } catch (Exception error) {
                    connection.rollback();
                    throw error;
                }
            }
            try (Statement statement = connection.createStatement();
                 ResultSet rows = statement.executeQuery("SELECT count(*) FROM orders_of_the_guide")) {
                rows.next();
                assertEquals(1, rows.getInt(1), "orders, after two runs");
            }
        }
    }

    @Test
    void aFilter() throws Exception {
        try (Client client = Client.connect(url)) {
            assertEquals(IdempotencyFilter.class, idempotency(client).getClass());
        }
    }

    @Bean
    IdempotencyFilter idempotency(Client client) { // polylatch.blocking.Client
        return new IdempotencyFilter(client, request -> request.getRemoteUser()); // null: handled as if it had no key
    }
}
