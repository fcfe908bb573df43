package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/feedbridge/feedbridge/safetext"
)

// printer writes lines of text and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

// longestPrinted is the most characters of a value in a printed line.
const longestPrinted = 1000

// ownText is text of the program itself. It is printed as it is, and may have several lines.
type ownText string

// line writes a line. Its text values may come from outside, so they are cleaned
// and clipped, and the secrets of URLs in them are hidden.
func (p *printer) line(format string, args ...any) {
	if p.err != nil {
		return
	}
	var redact *safetext.Redactor
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = redact.Clip(v, longestPrinted)
		case fmt.Stringer:
			args[i] = redact.Clip(v.String(), longestPrinted)
		case error:
			args[i] = redact.Clip(v.Error(), longestPrinted)
		}
	}
	_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
}

// printJSON writes v as indented JSON. Values are complete; control characters are
// escaped.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(safetext.JSON(b.Bytes()))
	return err
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
