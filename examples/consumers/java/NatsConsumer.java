// Prints the entities of a topic on NATS. Usage: java NatsConsumer.java URL STREAM TOPIC
import io.nats.client.*;
import io.nats.client.api.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

public class NatsConsumer {
    static void handle(String operation, String id, byte[] body) {
        System.out.println(operation + "\t" + id + "\t" + new String(body, StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        String url = args[0], stream = args[1], topic = args[2];
        Connection connection = Nats.connect(Options.builder().server(url).maxReconnects(-1).build());
        ConsumerContext consumer = connection.getStreamContext(stream)
            .createOrUpdateConsumer(ConsumerConfiguration.builder()
            .durable("my-service").filterSubject(topic).ackPolicy(AckPolicy.Explicit)
            .maxAckPending(1) // one message at a time: with more, one that failed comes again after its successors
            .build());
        long last = 0; // better: the sequence that you have stored together with the effect of its message
        while (true) {
            Message message = consumer.next(Duration.ofSeconds(30));
            if (message == null) {
                continue; // nothing new
            }
            long sequence = message.metaData().streamSequence();
            if (sequence > last) { // otherwise the acknowledgement was lost, and it was handled before
                String operation = message.getHeaders().getFirst("Feedbridge-Operation");
                handle(operation, message.getHeaders().getFirst("Content-ID"), message.getData());
                last = sequence;
            }
            message.ackSync(Duration.ofSeconds(10));
        }
    }
}
