package feedxml

import (
	"fmt"
	"strings"
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

// reference is a URI reference in its five parts (RFC 3986, section 3).
type reference struct {
	scheme, authority, path, query, fragment string
	hasAuthority, hasQuery, hasFragment      bool
}

// resolveReference makes a reference absolute. It is not ok if the reference is
// relative and base is not absolute.
//
// [net/url.URL.ResolveReference] is not used because it gives an empty reference the
// fragment of its base, refuses every reference that [net/url.Parse] refuses, and
// rewrites its result, so that one address could have two spellings. This function only
// removes dot segments, and percent-encodes characters that no URI has, as in IRIs.
func resolveReference(base, ref string) (absolute string, ok bool) {
	ref = percentEncode(trimSpace(ref))
	r := splitReference(ref)
	if r.scheme != "" && !strings.Contains(r.path, "/.") {
		return ref, true
	}
	b := splitReference(base)
	if r.scheme == "" && b.scheme == "" {
		return "", false
	}
	switch {
	case r.scheme != "":
		r.path = removeDots(r.path)
		return r.String(), true
	case r.hasAuthority:
		r.path = removeDots(r.path)
	default:
		r.authority, r.hasAuthority = b.authority, b.hasAuthority
		switch {
		case r.path == "":
			r.path = b.path
			if !r.hasQuery {
				r.query, r.hasQuery = b.query, b.hasQuery
			}
		case r.path[0] == '/':
			r.path = removeDots(r.path)
		case b.hasAuthority && b.path == "":
			r.path = removeDots("/" + r.path)
		default:
			r.path = removeDots(b.path[:strings.LastIndexByte(b.path, '/')+1] + r.path)
		}
	}
	r.scheme = b.scheme
	return r.String(), true
}

func splitReference(s string) (r reference) {
	s, r.fragment, r.hasFragment = strings.Cut(s, "#")
	s, r.query, r.hasQuery = strings.Cut(s, "?")
	if i := schemeLength(s); i > 0 {
		r.scheme, s = s[:i], s[i+1:]
	}
	if rest, ok := strings.CutPrefix(s, "//"); ok {
		r.hasAuthority = true
		n := strings.IndexByte(rest, '/')
		if n < 0 {
			n = len(rest)
		}
		r.authority, s = rest[:n], rest[n:]
	}
	r.path = s
	return r
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

func (r reference) String() string {
	var b strings.Builder
	b.WriteString(r.scheme)
	b.WriteByte(':')
	if r.hasAuthority {
		b.WriteString("//" + r.authority)
	} else if strings.HasPrefix(r.path, "//") {
		// Else the path would read as an authority (RFC 3986, section 5.3,
		// erratum 4547).
		b.WriteString("/.")
	}
	b.WriteString(r.path)
	if r.hasQuery {
		b.WriteString("?" + r.query)
	}
	if r.hasFragment {
		b.WriteString("#" + r.fragment)
	}
	return b.String()
}

// removeDots removes dot segments (RFC 3986, section 5.2.4).
func removeDots(path string) string {
	if !strings.Contains(path, "/.") && !strings.HasPrefix(path, ".") {
		return path
	}
	var out []string
	segments := strings.Split(path, "/")
	rooted := segments[0] == "" && len(segments) > 1
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".", "..":
			least := 0
			if rooted {
				least = 1
			}
			if segment == ".." && len(out) > least {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, segment)
		}
	}
	return strings.Join(out, "/")
}

// percentEncode percent-encodes characters that no URI has. A % that begins no escape
// is kept, because the intended character is unknown.
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
