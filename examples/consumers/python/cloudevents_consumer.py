# Prints the CloudEvents of a topic on Kafka, one JSON object in a line. Usage: cloudevents_consumer.py BROKERS TOPIC
import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from confluent_kafka import Consumer


def handle(event):
    data = event.get_data()  # decoded, if it is JSON; None if it is empty or a tombstone
    print(json.dumps({
        "id": event.get_id(), "source": event.get_source(), "type": event.get_type(), "subject": event.get_subject(),
        "time": event.get_time().isoformat(), "datacontenttype": event.get_datacontenttype() or "",
        "sequence": event.get_extension("sequence"), "data": json.dumps(data) if isinstance(data, dict) else data or "",
    }), flush=True)


def main(brokers, topic):
    consumer = Consumer({
        "bootstrap.servers": brokers,
        "group.id": "my-service",
        "isolation.level": "read_committed",  # without events of aborted transactions
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
        # Only the attributes: the SDK fails at other headers of a feed that are not UTF-8.
        headers = {name: value for name, value in message.headers() if name.startswith("ce_") or name == "content-type"}
        handle(from_binary_event(KafkaMessage(headers, message.key(), message.value())))
        consumer.commit(message, asynchronous=False)


main(*sys.argv[1:])
