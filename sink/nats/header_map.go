package nats

import (
	"github.com/nats-io/nats.go"

	"github.com/feedbridge/feedbridge/feed"
)

// headerMap converts the headers of one message after the other to the map that nats.go takes.
// The entities of a feed mostly have the same header names in the same order, so it keeps the
// map and replaces the values in it: a map that is filled again for each message would take a
// tenth of the time of a commit. The zero headerMap is ready to use.
type headerMap struct {
	m nats.Header
	// names has the names in m in the order of the fields, and values their values. m refers to
	// values. Both are empty if m has a name with several values.
	names, values []string
}

// convert returns the map of fields. It is valid until the next call.
func (h *headerMap) convert(fields feed.Header) nats.Header {
	if !h.hasNames(fields) {
		h.fill(fields)
		return h.m
	}
	for i := range fields {
		h.values[i] = fields[i].Value
	}
	return h.m
}

// hasNames reports whether m has the names of fields, in their order, with one value each.
func (h *headerMap) hasNames(fields feed.Header) bool {
	if len(h.names) != len(fields) {
		return false
	}
	for i := range fields {
		if h.names[i] != fields[i].Name {
			return false
		}
	}
	return true
}

// fill makes a new map.
func (h *headerMap) fill(fields feed.Header) {
	*h = headerMap{
		m:      make(nats.Header, len(fields)),
		names:  make([]string, len(fields)),
		values: make([]string, len(fields)),
	}
	for i, f := range fields {
		h.names[i], h.values[i] = f.Name, f.Value
		if before := h.m[f.Name]; before != nil {
			h.m[f.Name] = append(before, f.Value)
			continue
		}
		h.m[f.Name] = h.values[i : i+1 : i+1]
	}
	if len(h.m) < len(fields) {
		h.names, h.values = nil, nil
	}
}
