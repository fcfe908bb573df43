package feedxml

import (
	"strings"
	"unicode/utf8"
)

const (
	// longestAddress is the maximum length of an ID, a URL or any other short text of a
	// document, in bytes. Without it, a document of a few kilobytes can produce
	// gigabytes: a long xml:base is part of every URL that is relative to it.
	longestAddress = 8 << 10
	// longestDate is the maximum length of a date, in bytes.
	longestDate = 256
	// mostLinks is the maximum number of links of a document, and mostRelations that of
	// relations of one link.
	mostLinks     = 1000
	mostRelations = 16
	// mostAttributes is the maximum number of attributes of an element.
	mostAttributes = 256
	// mostInherited is the maximum number of bytes of namespaces, xml:base and xml:lang
	// that the entries of a document inherit. Each entry that uses them has a copy.
	mostInherited = 64 << 10
)

// clipBytes returns the first bytes of a text: whole characters, and no more than
// limit bytes.
func clipBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

func clipText(s string) string { return strings.Clone(clipBytes(s, longestAddress)) }
