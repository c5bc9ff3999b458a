// A function that fails in the middle, in Kafka Streams.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;

public class StreamsFork {
    static String fail(String number, long count) {
        if (number.endsWith("0")) {
            throw new IllegalArgumentException("a tenth message");
        }
        return Long.toString(count);
    }

    public static void main(String[] arguments) {
        var name = System.getenv().getOrDefault("NAME", "shop");
        var settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", System.getenv().getOrDefault("BROKER", "localhost:9092"));
        settings.put("state.dir", System.getenv().getOrDefault("STATE", "state"));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("processing.exception.handler", LogAndContinueProcessingExceptionHandler.class);
        settings.put("errors.dead.letter.queue.topic.name", name + ".errors");
        settings.put("replication.factor", 1);
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());

        var builder = new StreamsBuilder();
        var counted = builder.<String, String>stream(name + ".numbers")
            .groupByKey()
            .aggregate(() -> "0,0", (key, number, last) -> number + "," + (Long.parseLong(last.split(",")[1]) + 1))
            .toStream()
            .mapValues(both -> both.split(","));
        counted.mapValues(both -> both[0]).to(name + ".first");
        counted.mapValues(both -> fail(both[0], Long.parseLong(both[1]))).to(name + ".second");

        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
