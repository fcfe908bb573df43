# Prints what happens to the orders of a topic on NATS. Usage: nats_consumer.py URL STREAM TOPIC
import asyncio, json, sqlite3, sys

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy


async def main(url, stream, topic):
    db = sqlite3.connect("orders.db")
    db.execute("CREATE TABLE IF NOT EXISTS position (topic PRIMARY KEY, sequence)")
    row = db.execute("SELECT sequence FROM position WHERE topic = ?", (topic,)).fetchone()
    connection = await nats.connect(url, max_reconnect_attempts=-1)
    after = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=row[0] + 1 if row else 1)
    messages = await connection.jetstream().subscribe(topic, stream=stream, ordered_consumer=True, config=after)
    async for message in messages.messages:
        operation, order = message.headers["Feedbridge-Operation"], json.loads(message.data)
        with db:  # one transaction for the position and for what you do with the order
            print(operation, order["id"], order["status"], flush=True)
            db.execute("REPLACE INTO position VALUES (?, ?)", (topic, message.metadata.sequence.stream))


asyncio.run(main(*sys.argv[1:]))
