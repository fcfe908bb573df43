package sink

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// A mark is a text of fields with a semicolon between them: numbers, times in nanoseconds and
// hashes in hexadecimal digits. Packed, each field has a byte for its form, and its value in
// that form. A mark of 85 characters takes about 38 bytes.
const (
	packText   = 0x00 // to 0x3F, the length of a text
	packNumber = 0x40 // a number, as a varint
	packTime   = 0x41 // a number that is a multiple of a second, in seconds
	packLong   = 0x42 // a longer text: its length, as a varint, and the text
	packHex    = 0x80 // to 0xFF, the number of bytes that hexadecimal digits stand for

	nanoseconds = 1_000_000_000
)

// packMark appends the packed form of a mark.
func packMark(b []byte, mark string) []byte {
	for field := range strings.SplitSeq(mark, ";") {
		b = packField(b, field)
	}
	return b
}

func packField(b []byte, field string) []byte {
	if n, err := strconv.ParseUint(field, 10, 64); err == nil && strconv.FormatUint(n, 10) == field {
		if n >= nanoseconds && n%nanoseconds == 0 {
			return binary.AppendUvarint(append(b, packTime), n/nanoseconds)
		}
		return binary.AppendUvarint(append(b, packNumber), n)
	}
	if n := len(field) / 2; n > 0 && n < 0x80 && len(field)%2 == 0 && strings.Trim(field, "0123456789abcdef") == "" {
		b, _ = hex.AppendDecode(append(b, packHex|byte(n)), []byte(field))
		return b
	}
	if len(field) < packNumber {
		return append(append(b, packText|byte(len(field))), field...)
	}
	return append(binary.AppendUvarint(append(b, packLong), uint64(len(field))), field...)
}

// unpackMark returns the mark of a packed form.
func unpackMark(b []byte) string {
	text := make([]byte, 0, 3*len(b))
	for first := true; len(b) > 0; first = false {
		if !first {
			text = append(text, ';')
		}
		form := b[0]
		b = b[1:]
		n := 0
		switch {
		case form&packHex != 0:
			n = int(form &^ packHex)
			text = hex.AppendEncode(text, b[:n])
		case form == packNumber, form == packTime:
			var value uint64
			if value, n = binary.Uvarint(b); form == packTime {
				value *= nanoseconds
			}
			text = strconv.AppendUint(text, value, 10)
		case form == packLong:
			length, prefix := binary.Uvarint(b)
			n = prefix + int(length)
			text = append(text, b[prefix:n]...)
		default:
			n = int(form)
			text = append(text, b[:n]...)
		}
		b = b[n:]
	}
	return string(text)
}
