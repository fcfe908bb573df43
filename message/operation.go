package message

import (
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// FormatOperation returns the value of an Operation-Type.
func FormatOperation(op feed.Operation) string { return "http-equiv=" + string(op) }

// ParseOperation parses the value of an Operation-Type: http-equiv=PUT and the
// like, or the operation only, in any case and with or without quotes around the
// operation or the whole value. It reports false for everything else.
func ParseOperation(s string) (op feed.Operation, ok bool) {
	switch s { // as nearly all feeds write it; this runs for every entity
	case "http-equiv=PUT":
		return feed.Put, true
	case "http-equiv=PATCH":
		return feed.Patch, true
	case "http-equiv=DELETE":
		return feed.Delete, true
	}
	s = unquote(s)
	if name, value, found := strings.Cut(s, "="); found {
		if !strings.EqualFold(trimSpace(name), "http-equiv") {
			return "", false
		}
		s = unquote(value)
	}
	for _, op := range [...]feed.Operation{feed.Put, feed.Patch, feed.Delete} {
		if len(s) == len(op) && strings.EqualFold(s, string(op)) {
			return op, true
		}
	}
	return "", false
}

func unquote(s string) string {
	s = trimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = trimSpace(s[1 : len(s)-1])
	}
	return s
}

// trimSpace removes white space at both ends.
func trimSpace(s string) string { return strings.Trim(s, " \t\r\n") }
