# Prints what happens to the orders of a topic on Kafka. Usage: kafka_consumer.py BROKERS TOPIC
import json, sys

from confluent_kafka import Consumer

brokers, topic = sys.argv[1:]
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
        continue  # nothing new
    if message.error():
        raise SystemExit(message.error())
    operation, order = dict(message.headers())["Feedbridge-Operation"].decode(), json.loads(message.value())
    print(operation, order["id"], order["status"], flush=True)
    consumer.commit(message, asynchronous=False)  # the position; a crash before it repeats the message
