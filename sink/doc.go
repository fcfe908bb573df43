// Package sink has the parts that all sinks share: the [IDs] that deduplicate a topic, and
// the [Gate], a source that leaves out entities which the topic holds already or the bus does
// not take. Package message has the codec of the messages.
package sink
