// Package link reads the syntax of the HTTP field Link (RFC 8288).
package link

import (
	"iter"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Values returns the values of a Link field, which commas outside of <> and of quotes
// separate. If a bracket or a quote is not closed, the last value has the rest of the field,
// so that no link is overlooked.
func Values(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, closing := 0, byte(0)
		for i := 0; i < len(field); i++ {
			switch c := field[i]; {
			case closing == '"' && c == '\\':
				i++
			case closing != 0:
				if c == closing {
					closing = 0
				}
			case c == '<':
				closing = '>'
			case c == '"':
				closing = '"'
			case c == ',':
				if value := trimBlanks(field[start:i]); value != "" && !yield(value) {
					return
				}
				start = i + 1
			}
		}
		if value := trimBlanks(field[start:]); value != "" {
			yield(value)
		}
	}
}

// relFirst matches the parameters of a link whose first one is rel.
var relFirst = regexp.MustCompile(`(?i)^;[ \t]*rel[ \t]*=`)

// CutTarget splits a link value into its target and the rest. The target may be without
// <>, as in the specification's examples, if it is an absolute http URL and rel follows.
// Otherwise the end of the URL would be ambiguous.
func CutTarget(value string) (target, rest string, ok bool) {
	if strings.HasPrefix(value, "<") {
		target, rest, ok = strings.Cut(value[1:], ">")
		return trimBlanks(target), rest, ok && isPlain(trimBlanks(target))
	}
	end := strings.IndexByte(value, ';')
	if end < 0 {
		end = len(value)
	}
	target, rest = trimBlanks(value[:end]), value[end:]
	if target == "" {
		return "", rest, true
	}
	lower := strings.ToLower(target)
	absolute := strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
	return target, rest, absolute && isPlain(target) && (rest == "" || relFirst.MatchString(rest))
}

// isPlain reports whether s has no control characters, blanks, brackets or quotes. No URL
// has them, and they may be signs of a missing bracket or quote.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '<' || r == '>' })
}

// Params are the parameters of a link that decide its relation.
type Params struct {
	Rel      string // of the first rel; RFC 8288 has parsers ignore the others
	Type     string // the media type of the target
	Anchored bool   // an anchor names another page as the origin of the link
}

// ParseParams parses the parameters of a link value. It accepts the faults that are
// common in links of other software: no value, nothing between semicolons, and characters
// that should be in quotes.
func ParseParams(s string) (params Params, ok bool) {
	hasRel := false
	for s = trimBlanks(s); s != ""; s = trimBlanks(s) {
		if s[0] != ';' {
			return Params{}, false
		}
		s = trimBlanks(s[1:])
		n := 0
		for n < len(s) && httpguts.IsTokenRune(rune(s[n])) {
			n++
		}
		name, value := strings.ToLower(s[:n]), ""
		s = trimBlanks(s[n:])
		if n > 0 && strings.HasPrefix(s, "=") {
			s = trimBlanks(s[1:])
			if strings.HasPrefix(s, `"`) {
				if value, s, ok = CutQuoted(s); !ok {
					return Params{}, false
				}
			} else {
				end := len(s)
				if i := strings.IndexAny(s, "; \t"); i >= 0 {
					end = i
				}
				value, s = s[:end], s[end:]
				if !isPlain(value) {
					return Params{}, false
				}
			}
		}
		switch {
		case name == "rel" && !hasRel:
			params.Rel, hasRel = value, true
		case name == "type":
			params.Type = value
		case name == "anchor":
			params.Anchored = true
		}
	}
	return params, true
}

// CutQuoted splits s, which starts with a quote, into the quoted string, without its quotes
// and backslashes, and the rest. If the string does not end, ok is false.
func CutQuoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// trimBlanks returns s without leading and trailing spaces and tabs.
func trimBlanks(s string) string { return strings.Trim(s, " \t") }
