// Package sink has what all sinks share: the [IDs] that a topic already holds, and
// the [Gate] in front of a source that leaves out what the topic has or cannot
// take. Package message has the codec of the messages.
package sink
