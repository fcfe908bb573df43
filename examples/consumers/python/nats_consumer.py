# Prints the entities of a topic on NATS. Usage: nats_consumer.py URL STREAM TOPIC
import asyncio
import sys

import nats
from nats.js.api import AckPolicy, ConsumerConfig


def handle(operation, entity_id, body):
    print(operation, entity_id, body.decode(), sep="\t", flush=True)


async def main(url, stream, topic):
    connection = await nats.connect(url)
    # One message at a time: with more, one that failed comes again after its successors.
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1)
    consumer = await connection.jetstream().pull_subscribe(topic, durable="my-service", stream=stream, config=config)
    last = 0  # better: the sequence that you have stored together with the effect of its message
    while True:
        try:
            messages = await consumer.fetch(1, timeout=30)
        except nats.errors.TimeoutError:
            continue  # nothing new
        for message in messages:
            sequence = message.metadata.sequence.stream
            if sequence > last:  # otherwise the acknowledgement was lost, and it was handled before
                operation = message.headers["Feedbridge-Operation"]  # PUT, PATCH or DELETE
                handle(operation, message.headers["Content-ID"], message.data)
                last = sequence
            await message.ack_sync()


asyncio.run(main(*sys.argv[1:]))
