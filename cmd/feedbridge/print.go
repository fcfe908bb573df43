package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// printer writes lines of text and keeps the first error.
type printer struct {
	w io.Writer
	// redact hides the secrets of URLs. Nil knows the usual names of parameters only.
	redact *safetext.Redactor
	err    error
}

// longestPrinted is the most characters of a value in a printed line.
const longestPrinted = 1000

// ownText is text of the program itself. It is printed as it is, and may have several lines.
type ownText string

// printLine writes a line. Its text values may come from outside, so they are cleaned
// and clipped, and the secrets of URLs in them are hidden.
func (p *printer) printLine(format string, args ...any) {
	if p.err != nil {
		return
	}
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = p.redact.Clip(v, longestPrinted)
		case fmt.Stringer:
			args[i] = p.redact.Clip(v.String(), longestPrinted)
		case error:
			args[i] = p.redact.Clip(v.Error(), longestPrinted)
		}
	}
	_, p.err = fmt.Fprintln(p.w, p.redact.NameFile(fmt.Sprintf(format, args...)))
}

// printJSON writes v as indented JSON. Values are complete; control characters are
// escaped.
func printJSON(w io.Writer, v any) error {
	b, err := indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(safetext.JSON(b))
	return err
}

// printReport is printJSON with the secrets of URLs hidden, for the results of a command. The
// output of printJSON may be needed as it is: a cursor is set again.
func printReport(w io.Writer, redact *safetext.Redactor, v any) error {
	b, err := indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(safetext.JSON(redact.JSON(b, math.MaxInt)))
	return err
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// withNoun returns a number with its noun.
func withNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
