package message

import (
	"fmt"
	"strings"
)

// SafeValue returns a text that the value of a header can contain: control characters, and blanks around the text,
// which the IDs of working feeds do not have, are written as percent and two hexadecimal digits. Other texts stay the same.
func SafeValue(text string) string {
	begin := len(text) - len(strings.TrimLeft(text, " "))
	end := len(strings.TrimRight(text, " "))
	if begin == 0 && end == len(text) && !strings.ContainsFunc(text, isControl) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; i < begin || i >= end || isControl(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isControl(r rune) bool { return r < ' ' || r == 0x7F }
