// Prints the entities of a topic on Kafka. Usage: java KafkaConsumer.java BROKERS TOPIC
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class KafkaConsumer {
    static void handle(String operation, String id, byte[] body) {
        System.out.println(operation + "\t" + id + "\t" + new String(body, StandardCharsets.UTF_8));
    }

    static String header(ConsumerRecord<?, ?> record, String name) {
        return new String(record.headers().headers(name).iterator().next().value(), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", "my-service",
            "isolation.level", "read_committed", // without entities of aborted transactions
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new org.apache.kafka.clients.consumer.KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    byte[] body = record.value() == null ? new byte[0] : record.value(); // null is a tombstone
                    String operation = header(record, "Feedbridge-Operation");
                    handle(operation, header(record, "Content-ID"), body);
                }
                // Afterwards: a crash in between repeats messages. Better: store partition and offset
                // together with the effect of each message, and continue from there.
                consumer.commitSync();
            }
        }
    }
}
