#!/bin/sh
# The command of Kafka that asks a broker what it can do; -f: Java reads the * of the class path, not the shell.
set -f
exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -cp '/opt/kafka/libs/*' \
    org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
