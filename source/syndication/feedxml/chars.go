package feedxml

import (
	"encoding/binary"
	"unicode/utf8"
)

// isName, isNameStart and isSpace classify bytes of XML. All bytes beyond ASCII count as
// bytes of names.
var isName, isNameStart, isSpace [256]bool

func init() {
	for c := range isName {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':' || c >= utf8.RuneSelf
		isNameStart[c] = letter
		isName[c] = letter || c >= '0' && c <= '9' || c == '-' || c == '.'
		isSpace[c] = c == ' ' || c == '\t' || c == '\n' || c == '\r'
	}
}

// legalPrefix returns the length of the longest prefix of b that consists of whole
// UTF-8 characters which XML allows. If bad is set, the next character is not allowed;
// otherwise the rest is empty or the beginning of a character. replaced is set if b
// comes from a decoder that writes U+FFFD for unknown bytes: that character is bad
// then.
func legalPrefix(b []byte, replaced bool) (n int, bad bool) {
	for n < len(b) {
		// Eight bytes at once, for as long as all are printable ASCII.
		for n+32 <= len(b) {
			w := b[n : n+32]
			if unusualBytes(w)|unusualBytes(w[8:])|unusualBytes(w[16:])|unusualBytes(w[24:]) != 0 {
				break
			}
			n += 32
		}
		for n+8 <= len(b) && unusualBytes(b[n:]) == 0 {
			n += 8
		}
		for end := min(n+8, len(b)); n < end; {
			switch c := b[n]; {
			case c >= ' ' && c < utf8.RuneSelf || isSpace[c]:
				n++
			case c < ' ':
				return n, true
			default:
				char, size := utf8.DecodeRune(b[n:])
				switch {
				case size == 1:
					return n, utf8.FullRune(b[n:])
				case char == 0xfffe || char == 0xffff || char == utf8.RuneError && replaced:
					return n, true
				}
				n += size
			}
		}
	}
	return n, false
}

// unusualBytes returns 0 if the first eight bytes of b are printable ASCII.
func unusualBytes(b []byte) uint64 {
	const high, blank = 0x8080808080808080, 0x2020202020202020
	w := binary.LittleEndian.Uint64(b)
	return (w | (w-blank)&^w) & high
}

// isChar reports whether XML 1.0 allows the character.
func isChar(c rune) bool {
	return c == '\t' || c == '\n' || c == '\r' || c >= 0x20 && c <= 0xd7ff || c >= 0xe000 && c <= 0xfffd || c >= 0x10000 && c <= 0x10ffff
}

func allBlank(b []byte) bool {
	for _, c := range b {
		if !isSpace[c] {
			return false
		}
	}
	return true
}

// trimSpace removes the white space of XML, and no other, from both ends.
func trimSpace[T string | []byte](s T) T {
	for len(s) > 0 && isSpace[s[0]] {
		s = s[1:]
	}
	for len(s) > 0 && isSpace[s[len(s)-1]] {
		s = s[:len(s)-1]
	}
	return s
}
