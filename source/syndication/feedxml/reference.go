package feedxml

import (
	"bytes"
	"strconv"
)

// longestReference is the maximum length of the name in a reference, in bytes.
const longestReference = 64

// scanReferences checks the references in b[i:end], which is text. It records the first
// reference to an entity that XML does not define; that is no error.
func (s *scanner) scanReferences(b []byte, i, end int) *syntaxError {
	for i < end {
		if b[i] != '&' {
			n := bytes.IndexByte(b[i:end], '&')
			if n < 0 {
				return nil
			}
			i += n
		}
		rest := b[i+1 : min(end, i+2+longestReference)]
		// Check for escaped markup first: it is the most common, and the next piece of
		// it is usually close.
		if len(rest) >= 3 && rest[2] == ';' && rest[1] == 't' && (rest[0] == 'l' || rest[0] == 'g') {
			i += len("&lt;")
			for near := min(i+4, end); i < near && b[i] != '&'; i++ {
			}
			continue
		}
		n := bytes.IndexByte(rest, ';')
		if n <= 0 || !isNameStart[rest[0]] && rest[0] != '#' {
			return syntaxErrorf(i, "there is a & that is no reference")
		}
		switch name := string(rest[:n]); {
		case name[0] == '#':
			if _, ok := numeric(name); !ok {
				return syntaxErrorf(i, "&%s; is not a character that XML has", Excerpt(name))
			}
		case predefined(name) == 0:
			for _, c := range rest[:n] {
				if !isName[c] {
					return syntaxErrorf(i, "there is a & that is no reference")
				}
			}
			if s.undefined == "" {
				s.undefined = name
			}
		}
		i += n + 2
	}
	return nil
}

// predefined returns the character of an entity that XML defines; 0 for others.
func predefined(name string) byte {
	switch name {
	case "lt":
		return '<'
	case "gt":
		return '>'
	case "amp":
		return '&'
	case "apos":
		return '\''
	case "quot":
		return '"'
	}
	return 0
}

// numeric parses a numeric reference, as in "#38" and "#x26". It reports false if it is
// not a character that XML allows.
func numeric(name string) (rune, bool) {
	base, digits := 10, name[1:]
	if digits != "" && digits[0] == 'x' {
		base, digits = 16, digits[1:]
	}
	c, err := strconv.ParseUint(digits, base, 32)
	return rune(c), err == nil && c <= 0x10ffff && isChar(rune(c))
}
