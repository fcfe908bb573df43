// Prints what happens to the orders of a topic on Kafka. Usage: java KafkaConsumer.java BROKERS TOPIC
import com.fasterxml.jackson.databind.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class KafkaConsumer {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", "my-service",
            "isolation.level", "read_committed", // without entities of aborted transactions
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        ObjectMapper json = new ObjectMapper();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new org.apache.kafka.clients.consumer.KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    JsonNode order = json.readTree(record.value());
                    String operation = new String(record.headers().lastHeader("Feedbridge-Operation").value());
                    String id = order.path("id").asText(), status = order.path("status").asText();
                    System.out.println(operation + " " + id + " " + status);
                }
                consumer.commitSync(); // the positions; a crash before it repeats these messages
            }
        }
    }
}
