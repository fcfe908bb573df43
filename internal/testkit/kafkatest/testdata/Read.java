import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints what a topic holds for a reader with isolation.level=read_committed, from the start to
 * the last stable offsets that it finds at first: a line of JSON a record, with all bytes in
 * base64.
 *
 * <p>java -cp 'libs/*' Read.java BROKERS TOPIC
 */
public class Read {
  public static void main(String[] args) {
    Properties p = new Properties();
    p.put("bootstrap.servers", args[0]);
    p.put("isolation.level", "read_committed");
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", "false");
    p.put("allow.auto.create.topics", "false");
    p.put("key.deserializer", ByteArrayDeserializer.class.getName());
    p.put("value.deserializer", ByteArrayDeserializer.class.getName());
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p)) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(args[1]).stream()
              .map(i -> new TopicPartition(args[1], i.partition()))
              .toList();
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      // Positions count, not records: the last offset is a control record as a rule.
      while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
          if (r.offset() < ends.get(new TopicPartition(r.topic(), r.partition()))) {
            System.out.println(json(r));
          }
        }
      }
    }
  }

  static String json(ConsumerRecord<byte[], byte[]> r) {
    List<String> headers = new ArrayList<>();
    for (Header h : r.headers()) {
      byte[] key = h.key().getBytes(StandardCharsets.UTF_8);
      headers.add("{\"key\":" + base64(key) + ",\"value\":" + base64(h.value()) + "}");
    }
    return String.format(
        "{\"partition\":%d,\"offset\":%d,\"key\":%s,\"value\":%s,\"headers\":[%s]}",
        r.partition(), r.offset(), base64(r.key()), base64(r.value()), String.join(",", headers));
  }

  static String base64(byte[] b) {
    return b == null ? "null" : '"' + Base64.getEncoder().encodeToString(b) + '"';
  }
}
