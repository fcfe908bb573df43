package datareplication

import (
	"strings"

	"github.com/feedbridge/feedbridge/safetext"
)

// parseBoundary returns the boundary parameter of a page's Content-Type, which
// may be any multipart type. It takes more than [mime.ParseMediaType]: feeds
// of this format are served with an unquoted boundary=<random-boundary>.
func parseBoundary(contentType, page string) (string, error) {
	if contentType == "" {
		return "", broken(MissingContentType, page, "the page has no Content-Type")
	}
	_, params, _ := strings.Cut(contentType, ";")
	if !isMultipart(contentType) {
		return "", broken(BadContentType, page, "the page's Content-Type is %q, which is not multipart", excerpt(contentType))
	}
	for params != "" {
		name, value, rest, ok := cutParam(params)
		if !ok {
			return "", broken(BadContentType, page, "the page's Content-Type %q cannot be read", excerpt(contentType))
		}
		if !strings.EqualFold(name, "boundary") {
			params = rest
			continue
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", broken(BadContentType, page, "the boundary %q in the page's Content-Type has control characters", excerpt(value))
		}
		if value == "" {
			break
		}
		return value, nil
	}
	return "", broken(MissingBoundary, page, "the page's Content-Type %q has no boundary", excerpt(contentType))
}

func isMultipart(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	main, _, _ := strings.Cut(mediaType, "/")
	return strings.EqualFold(trimBlanks(main), "multipart")
}

// cutParam cuts the first parameter off a list of parameters between
// semicolons. A value without quotes is all that there is up to the semicolon.
// It is not ok if a quoted value does not end or has something behind it.
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

// cutQuoted cuts a quoted string off s, which starts with its quote, and
// resolves the backslashes in it. It is not ok if the string does not end.
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

// trimBlanks cuts off the white space that HTTP and MIME allow around things.
// Unlike [strings.Trim] it does not build a set of characters first: it runs
// for every field of every entity.
func trimBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isToken says whether s is a token of RFC 9110, which every header name is.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenByte[s[i]] {
			return false
		}
	}
	return s != ""
}

var isTokenByte = func() (is [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[c] = true
	}
	return is
}()

// excerpt returns as much of s as goes into an error or a log line.
func excerpt(s string) string {
	var redact *safetext.Redactor
	return redact.Excerpt(s, 160)
}
