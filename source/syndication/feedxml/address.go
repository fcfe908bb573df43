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
	// mostInherited is the maximum number of bytes of namespaces, xml:base and xml:lang
	// that the entries of a document inherit. Each entry that uses them has a copy.
	mostInherited = 64 << 10
)

// resolveLink makes a reference absolute, as [resolveReference] does. It is not ok if
// the reference or the result is longer than [longestAddress].
func resolveLink(base, ref string) (absolute string, ok bool) {
	if len(ref) > longestAddress || len(base) > longestAddress {
		return "", false
	}
	absolute, ok = resolveReference(base, ref)
	if len(absolute) > longestAddress {
		return "", false
	}
	return absolute, ok
}

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

func keepFirst(at *string, content []byte) {
	if *at == "" {
		*at = plainText(content)
	}
}

// keepFirstClipped is keepFirst for the metadata of a document. It copies the text,
// because metadata stays in memory longer than an entry.
func keepFirstClipped(at *string, content []byte) {
	if *at == "" {
		*at = clipText(plainText(content))
	}
}

func clipText(s string) string { return strings.Clone(clipBytes(s, longestAddress)) }
