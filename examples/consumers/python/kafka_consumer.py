# Prints the entities of a topic on Kafka. Usage: kafka_consumer.py BROKERS TOPIC
import sys

from confluent_kafka import Consumer


def handle(operation, entity_id, body):
    print(operation, entity_id, body.decode(), sep="\t", flush=True)


def main(brokers, topic):
    consumer = Consumer({
        "bootstrap.servers": brokers,
        "group.id": "my-service",
        "isolation.level": "read_committed",  # without entities of aborted transactions
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise SystemExit(message.error())
        headers = dict(reversed(message.headers()))  # of several values the first
        operation = headers["Feedbridge-Operation"].decode()  # PUT, PATCH or DELETE
        body = message.value() or b""  # None is a tombstone, with "delete: tombstone"
        handle(operation, headers["Content-ID"].decode(), body)
        # Afterwards: a crash in between repeats the message. Better: store partition and offset
        # together with the effect of the message, and continue from there.
        consumer.commit(message, asynchronous=False)


main(*sys.argv[1:])
