// Package fleet describes how copies of feedbridge share the feeds of one configuration.
//
// Copies with the same fleet name and bus are the members of a fleet. Each feed is run by one of
// them. Who runs a feed is no part of the promise: for a moment two members may run it, or none.
// The fence of the sink keeps the topic exact in both cases.
package fleet

import "slices"

// Assignment is the division of a fleet's feeds among its members, as far as one member knows
// it. It is immutable, and safe for concurrent use.
type Assignment struct {
	// Self is the name of this copy.
	Self string
	// Members are the names of all members, in order. Self is missing if this copy is not, or
	// no longer, one of them.
	Members []string
	// Owner returns the name of the member that runs the feed of a topic. It is empty if no
	// member does at present, or it is not known which one.
	Owner func(topic string) string
}

// Owns reports whether this copy runs the feed of a topic.
func (a Assignment) Owns(topic string) bool {
	return slices.Contains(a.Members, a.Self) && a.Owner(topic) == a.Self
}
