// Package sink has what all sinks share: how an entity travels as a message of
// a bus ([Header] and [Entity]), the [IDs] that a topic already holds, and the
// [Gate] in front of a source that leaves out what the topic has or cannot
// take.
package sink
