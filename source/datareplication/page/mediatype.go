package page

import (
	"strings"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// ParseBoundary returns the boundary parameter of a page's Content-Type, which
// may be any multipart type. It accepts more than [mime.ParseMediaType] does: feeds
// of this format are served with an unquoted boundary=<random-boundary>. The name of the
// page is used in errors, which match [feed.ErrPermanent].
func ParseBoundary(contentType, page string) (string, error) {
	if contentType == "" {
		return "", newBreach(kindMissingContentType, page, "the page has no Content-Type")
	}
	_, params, _ := strings.Cut(contentType, ";")
	if !isMultipart(contentType) {
		return "", newBreach(kindBadContentType, page, "the page's Content-Type is %q, which is not multipart", safetext.Excerpt(contentType))
	}
	for params != "" {
		name, value, rest, ok := cutParam(params)
		if !ok {
			return "", newBreach(kindBadContentType, page, "the page's Content-Type %q cannot be read", safetext.Excerpt(contentType))
		}
		if !strings.EqualFold(name, "boundary") {
			params = rest
			continue
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", newBreach(kindBadContentType, page, "the boundary %q in the page's Content-Type has control characters", safetext.Excerpt(value))
		}
		if value == "" {
			break
		}
		return value, nil
	}
	return "", newBreach(kindMissingBoundary, page, "the page's Content-Type %q has no boundary", safetext.Excerpt(contentType))
}

func isMultipart(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	main, _, _ := strings.Cut(mediaType, "/")
	return strings.EqualFold(trimBlanks(main), "multipart")
}

// cutParam splits a list of parameters, which semicolons separate, into the first one and
// the rest. A value without quotes ends at the semicolon. If a quoted value does not end,
// or has anything but blanks after it, ok is false.
func cutParam(s string) (name, value, rest string, ok bool) {
	end := strings.IndexAny(s, "=;")
	if end < 0 {
		return trimBlanks(s), "", "", true
	}
	name, rest = trimBlanks(s[:end]), s[end+1:]
	if s[end] == ';' {
		return name, "", rest, true
	}
	rest = trimBlanks(rest)
	if !strings.HasPrefix(rest, `"`) {
		value, rest, _ = strings.Cut(rest, ";")
		return name, trimBlanks(value), rest, true
	}
	if value, rest, ok = cutQuoted(rest); !ok {
		return "", "", "", false
	}
	junk, rest, _ := strings.Cut(rest, ";")
	return name, value, rest, trimBlanks(junk) == ""
}

// cutQuoted splits s, which starts with a quote, into the quoted string, without its quotes
// and backslashes, and the rest. If the string does not end, ok is false.
func cutQuoted(s string) (value, rest string, ok bool) {
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

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isTokenByte has the bytes of a token of RFC 9110, which every header name is.
var isTokenByte = func() (is [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[c] = true
	}
	return is
}()
