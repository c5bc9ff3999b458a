// The pipe in Kafka Streams.

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

public class StreamsPipe {
    public static void main(String[] arguments) {
        var name = System.getenv().getOrDefault("NAME", "shop");
        var settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", System.getenv().getOrDefault("BROKER", "localhost:9092"));
        settings.put("state.dir", System.getenv().getOrDefault("STATE", "state"));
        settings.put("num.stream.threads", Integer.parseInt(System.getenv().getOrDefault("THREADS", "1")));
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("consumer.session.timeout.ms", 10_000);
        settings.put("producer.compression.type", "lz4");
        settings.put("replication.factor", 1);

        var builder = new StreamsBuilder();
        builder.stream(name + ".values", Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .to(name + ".copies", Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));

        var streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
