import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** `hold AT PATH` holds the lock until a line comes; `sections AT PATH COUNT FOLDER` makes the folder in each section. */
class Curator {
    public static void main(String[] words) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(words[1], 20000, 10000, new RetryOneTime(100));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, words[2]);
        if (words[0].equals("hold")) {
            mutex.acquire();
            System.out.println("held");
            new BufferedReader(new InputStreamReader(System.in)).readLine();
            mutex.release();
        } else {
            System.out.println("ready");
            int overlaps = 0;
            Path inside = Path.of(words[4]);
            for (int at = 0; at < Integer.parseInt(words[3]); at++) {
                mutex.acquire();
                try {
                    Files.createDirectory(inside);
                    Files.delete(inside);
                } catch (java.nio.file.FileSystemException alone) {
                    overlaps++;
                }
                mutex.release();
            }
            System.out.println("overlaps " + overlaps);
        }
        client.close();
    }
}
