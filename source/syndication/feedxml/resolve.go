package feedxml

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// resolveLink makes a reference absolute. Absolute references stay as they are written, but for
// characters that no URI has, as in IRIs, which are percent-encoded. So is, in relative ones, a % that begins
// no escape. It is not ok if the reference is no URI, if it is relative and base is not absolute, or if one
// of them or the result is longer than [longestAddress].
func resolveLink(base, ref string) (absolute string, ok bool) {
	if len(ref) > longestAddress || len(base) > longestAddress {
		return "", false
	}
	absolute = percentEncode(trimSpace(ref))
	if schemeLength(absolute) == 0 {
		from, err := url.Parse(escapePercents(base))
		if err != nil || !from.IsAbs() {
			return "", false
		}
		from.Fragment, from.RawFragment = "", "" // an empty reference has none (RFC 3986, section 5.2.2)
		if i := strings.IndexAny(absolute, ":/?#"); i >= 0 && absolute[i] == ':' {
			absolute = "./" + absolute // a name with a colon that is no scheme, such as a time
		}
		to, err := from.Parse(escapePercents(absolute))
		if err != nil {
			return "", false
		}
		absolute = to.String()
	}
	if len(absolute) > longestAddress {
		return "", false
	}
	return absolute, true
}

// schemeLength returns the length of the scheme that s starts with, without its colon;
// 0 if it has none.
func schemeLength(s string) int {
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case s[i] == ':':
			return i
		case c >= 'a' && c <= 'z':
		case i == 0:
			return 0
		case s[i] >= '0' && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.':
		default:
			return 0
		}
	}
	return 0
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}|%`)

// escapePercents percent-encodes each % that begins no escape.
func escapePercents(s string) string {
	return escape.ReplaceAllStringFunc(s, func(escape string) string {
		if escape == "%" {
			return "%25"
		}
		return escape
	})
}

// percentEncode percent-encodes characters that no URI has, except for %.
func percentEncode(s string) string {
	clean := true
	for i := 0; clean && i < len(s); i++ {
		clean = !isUnfit[s[i]]
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if isUnfit[s[i]] {
			fmt.Fprintf(&b, "%%%02X", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// isUnfit has the bytes that no URI contains.
var isUnfit [256]bool

func init() {
	for c := range isUnfit {
		isUnfit[c] = c <= ' ' || c >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", rune(c))
	}
}
