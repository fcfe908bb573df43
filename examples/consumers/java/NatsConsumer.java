// Prints what happens to the orders of a topic on NATS. Usage: java NatsConsumer.java URL STREAM TOPIC
import com.fasterxml.jackson.databind.*;
import io.nats.client.*;
import io.nats.client.api.*;
import java.nio.file.*;

public class NatsConsumer {
    public static void main(String[] args) throws Exception {
        String url = args[0], stream = args[1], topic = args[2];
        Path file = Path.of("position");
        long position = Files.exists(file) ? Long.parseLong(Files.readString(file)) : 0;
        Connection connection = Nats.connect(Options.builder().server(url).maxReconnects(-1).build());
        OrderedConsumerConfiguration after = new OrderedConsumerConfiguration()
            .filterSubject(topic).deliverPolicy(DeliverPolicy.ByStartSequence).startSequence(position + 1);
        ObjectMapper json = new ObjectMapper();
        try (var messages = connection.getStreamContext(stream).createOrderedConsumer(after).iterate()) {
            while (true) {
                Message message = messages.nextMessage(30_000);
                if (message == null) {
                    continue; // nothing new
                }
                JsonNode order = json.readTree(message.getData());
                String operation = message.getHeaders().getFirst("Feedbridge-Operation");
                String id = order.path("id").asText(), status = order.path("status").asText();
                System.out.println(operation + " " + id + " " + status);
                // After the effect: a crash before it repeats the message.
                Path next = Files.writeString(Path.of("position.new"), "" + message.metaData().streamSequence());
                Files.move(next, file, StandardCopyOption.ATOMIC_MOVE);
            }
        }
    }
}
