import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Base64;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/**
 * Prints, a line a key, the partition where KafkaProducer puts a record when no partitioner is
 * configured. The keys come from the standard input, in base64, a line each.
 *
 * <p>java -cp 'libs/*' Partition.java PARTITIONS
 */
public class Partition {
  public static void main(String[] args) throws IOException {
    int partitions = Integer.parseInt(args[0]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      byte[] key = Base64.getDecoder().decode(line);
      System.out.println(BuiltInPartitioner.partitionForKey(key, partitions));
    }
  }
}
