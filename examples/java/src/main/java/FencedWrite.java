import java.time.Duration;
import polylatch.LeaseLostException;
import polylatch.StaleTokenException;
import polylatch.TokenGate;
import polylatch.blocking.Client;

/** A holder from before comes back late, and the resource refuses it. */
public final class FencedWrite {
    public static void main(String[] arguments) throws InterruptedException {
        TokenGate account = new TokenGate(null);
        try (Client client = Client.connect(System.getenv().getOrDefault("POLYLATCH_URL", "memory:"))) {
            // The first holder's lease is short and not renewed: as if its process were paused for long.
            var paused = client.lock("account/1").lease(Duration.ofMillis(200)).renew(false).acquire();
            try (var guard = client.lock("account/1").waitAtMost(Duration.ofSeconds(10)).acquire()) {
                account.admit(guard.getFencingToken());
                System.out.println("the second holder writes with token " + guard.getFencingToken());
            }
            try {
                account.admit(paused.getFencingToken());
                throw new AssertionError("a late write came through");
            } catch (StaleTokenException refused) {
                System.out.println("the first holder comes back with token " + paused.getFencingToken() + ": refused");
            }
            try {
                paused.check();
                throw new AssertionError("it does not know");
            } catch (LeaseLostException lost) {
                System.out.println("and it learns: " + lost.getReason());
            }
        }
    }
}
