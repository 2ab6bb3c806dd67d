import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/**
 * `hold AT PATH MODE` holds the lock until a line comes. `sections AT PATH COUNT FOLDER KIND` writes a file into the folder in
 * each section and reads who else is inside. Modes are mutex, read, write and two (of three permits); kinds are mutex, rw and
 * semaphore (of three permits). `enter AT PATH NAME SECONDS FILE` enters sections under the mutex until its input ends, and
 * appends to the file when it entered and left; seconds are the timeout of its session.
 */
class Curator {
    private final CuratorFramework client;
    private final String path;
    private Collection<Lease> leases = List.of();

    private Curator(CuratorFramework client, String path) {
        this.client = client;
        this.path = path;
    }

    private InterProcessMutex mutex(String mode) {
        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(client, path);
        return switch (mode) {
            case "read" -> rw.readLock();
            case "write" -> rw.writeLock();
            default -> new InterProcessMutex(client, path);
        };
    }

    private void hold(String mode) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 3);
        InterProcessMutex mutex = mode.equals("two") ? null : mutex(mode);
        if (mutex == null) {
            leases = semaphore.acquire(2);
        } else {
            mutex.acquire();
        }
        System.out.println("held");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        if (mutex == null) {
            semaphore.returnAll(leases);
        } else {
            mutex.release();
        }
    }

    private void sections(int count, File folder, String kind) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 3);
        InterProcessMutex[] mutexes = kind.equals("rw")
            ? new InterProcessMutex[] {mutex("read"), mutex("write"), mutex("read")}
            : new InterProcessMutex[] {mutex("mutex")};
        System.out.println("ready");
        int overlaps = 0;
        for (int at = 0; at < count; at++) {
            if (kind.equals("semaphore")) {
                Lease lease = semaphore.acquire();
                overlaps += inside(folder, "permit");
                semaphore.returnLease(lease);
            } else {
                InterProcessMutex mutex = mutexes[at % mutexes.length];
                mutex.acquire();
                overlaps += inside(folder, kind.equals("rw") && at % 3 != 1 ? "read" : "write");
                mutex.release();
            }
        }
        System.out.println("overlaps " + overlaps);
    }

    private void enter(String name, Path history) throws Exception {
        InterProcessMutex mutex = mutex("mutex");
        AtomicBoolean over = new AtomicBoolean();
        Thread reads = new Thread(() -> {
            try {
                System.in.transferTo(OutputStream.nullOutputStream());
            } catch (IOException gone) {
                // Then it is over, too.
            }
            over.set(true);
        });
        reads.setDaemon(true);
        reads.start();
        try (OutputStream out = Files.newOutputStream(history, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            while (!over.get()) {
                mutex.acquire();
                // One call of write for each line, so that lines of several programs do not mix. The clock is the monotonic one.
                out.write(("enter " + name + " " + System.nanoTime() + "\n").getBytes());
                Thread.sleep(2);
                out.write(("leave " + name + " " + System.nanoTime() + "\n").getBytes());
                mutex.release();
            }
        }
    }

    private static int inside(File folder, String mode) throws Exception {
        Path own = Files.createFile(folder.toPath().resolve(mode + " " + UUID.randomUUID()));
        String[] all = folder.list();
        Files.delete(own);
        boolean alone = switch (mode) {
            case "permit" -> all.length <= 3;
            case "read" -> List.of(all).stream().noneMatch(name -> name.startsWith("write"));
            default -> all.length == 1;
        };
        return alone ? 0 : 1;
    }

    public static void main(String[] words) throws Exception {
        int session = words[0].equals("enter") ? 1000 * Integer.parseInt(words[4]) : 20000;
        CuratorFramework client = CuratorFrameworkFactory.newClient(words[1], session, 10000, new RetryOneTime(100));
        client.start();
        Curator curator = new Curator(client, words[2]);
        if (words[0].equals("hold")) {
            curator.hold(words[3]);
        } else if (words[0].equals("enter")) {
            curator.enter(words[3], Path.of(words[5]));
        } else {
            curator.sections(Integer.parseInt(words[3]), new File(words[4]), words[5]);
        }
        client.close();
    }
}
