// The job of the pages in Kafka Streams.

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Properties;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class StreamsOrders {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final Serde<String> KEY = Serdes.String();

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Order(String id, String customer, long cents) {}

    record Count(String id, long orders) {}

    static <T> Serde<T> json(Class<T> type) {
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return MAPPER.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : MAPPER.readValue(bytes, type);
                } catch (IOException error) {
                    throw new SerializationException(error);
                }
            });
    }

    static Order check(Order order) {
        if (order.cents() <= 0) {
            throw new IllegalArgumentException("cents must be positive");
        }
        return order;
    }

    public static void main(String[] arguments) {
        var name = System.getenv().getOrDefault("NAME", "shop");
        var settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", System.getenv().getOrDefault("BROKER", "localhost:9092"));
        settings.put("state.dir", System.getenv().getOrDefault("STATE", "state"));
        settings.put("processing.guarantee", "exactly_once_v2"); // commits every 100 ms
        settings.put("statestore.cache.max.bytes", 0); // every count, not the last one of each commit
        settings.put("deserialization.exception.handler", LogAndContinueExceptionHandler.class);
        settings.put("processing.exception.handler", LogAndContinueProcessingExceptionHandler.class);
        settings.put("errors.dead.letter.queue.topic.name", name + ".errors");
        settings.put("consumer.session.timeout.ms", 10_000);
        settings.put("producer.compression.type", "lz4");
        settings.put("replication.factor", 1);

        var builder = new StreamsBuilder();
        builder.stream(name + ".orders", Consumed.with(KEY, json(Order.class)))
            .mapValues(StreamsOrders::check)
            .groupByKey(Grouped.with(KEY, json(Order.class)))
            .aggregate(
                () -> new Count("", 0),
                (customer, order, count) -> new Count(order.id(), count.orders() + 1),
                Materialized.with(KEY, json(Count.class)))
            .toStream()
            .to(name + ".counts", Produced.with(KEY, json(Count.class)));

        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
