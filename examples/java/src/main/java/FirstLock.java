import java.time.Duration;
import polylatch.WaitTimeoutException;
import polylatch.blocking.Client;

/** A lock is taken, used and released. */
public final class FirstLock {
    public static void main(String[] arguments) throws InterruptedException {
        String url = System.getenv().getOrDefault("POLYLATCH_URL", "memory:");
        try (Client client = Client.connect(url)) {
            try (var guard = client.lock("orders/42").lease(Duration.ofSeconds(30)).acquire()) {
                // Hand the token to whatever is protected: it refuses writes of holders from before.
                System.out.println("write with token " + guard.getFencingToken());
                guard.onLost(reason -> System.err.println("stop: the lock is lost, " + reason));

                try {
                    client.lock("orders/42").waitAtMost(Duration.ofMillis(100)).acquire();
                    throw new AssertionError("another client got in");
                } catch (WaitTimeoutException held) {
                    System.out.println(held.getCode() + ", retry: " + held.getRetry());
                }
            }
            System.out.println("released");
        }
    }
}
