import com.rometools.rome.feed.synd.SyndEntry;
import io.nats.client.JetStream;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.io.UrlResource;
import org.springframework.integration.config.EnableIntegration;
import org.springframework.integration.dsl.IntegrationFlow;
import org.springframework.integration.dsl.Pollers;
import org.springframework.integration.feed.dsl.Feed;
import org.springframework.integration.metadata.PropertiesPersistingMetadataStore;

/**
 * Copies a feed by Spring Integration's inbound adapter. Its metadata store has the date of the
 * last entry. It is written after each message, so that a crash publishes entries again, which
 * NATS drops by their Nats-Msg-Id, rather than losing them.
 */
@Configuration
@EnableIntegration
public class Copy {
  public static void main(String[] arguments) throws InterruptedException {
    new AnnotationConfigApplicationContext(Copy.class);
    Thread.currentThread().join();
  }

  @Bean
  PropertiesPersistingMetadataStore store() {
    PropertiesPersistingMetadataStore store = new PropertiesPersistingMetadataStore();
    store.setBaseDirectory("metadata");
    return store;
  }

  @Bean
  JetStream jetStream() throws Exception {
    Options options = new Options.Builder().server(System.getenv("NATS_URL")).maxReconnects(-1)
        .reconnectWait(Duration.ofMillis(100)).build();
    return Nats.connectReconnectOnConnect(options).jetStream();
  }

  @Bean
  IntegrationFlow flow(PropertiesPersistingMetadataStore store, JetStream jetStream) throws Exception {
    // Go writes a duration as 500ms or 1m0s.
    Duration every = Duration.parse(System.getenv("EVERY").endsWith("ms")
        ? "PT0." + System.getenv("EVERY").replace("ms", "S") : "PT" + System.getenv("EVERY").toUpperCase());
    UrlResource feed = new UrlResource(URI.create(System.getenv("FEED_URL")));
    return IntegrationFlow
        .from(Feed.inboundAdapter(feed, "entries").metadataStore(store),
            adapter -> adapter.poller(Pollers.fixedDelay(every).maxMessagesPerPoll(-1)))
        .handle(SyndEntry.class, (entry, headers) -> {
          publish(jetStream, entry);
          store.flush();
          return null;
        })
        .get();
  }

  /** Retries until the message is stored: the adapter does not offer an entry a second time. */
  private static void publish(JetStream jetStream, SyndEntry entry) {
    byte[] body = (entry.getUri() + "\n" + entry.getTitle() + "\n" + entry.getContents().get(0).getValue())
        .getBytes(StandardCharsets.UTF_8);
    while (true) {
      try {
        String id = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        jetStream.publish("entries", body, PublishOptions.builder().messageId(id).build());
        return;
      } catch (Exception failed) {
        System.err.println(failed);
        try {
          Thread.sleep(200);
        } catch (InterruptedException interrupted) {
          throw new IllegalStateException(interrupted);
        }
      }
    }
  }
}
