package main

import (
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/term"
)

// columnsOf measures text that may have the codes of look.paint.
var columnsOf = displaywidth.Options{ControlSequences: true}

// look is what a terminal can show. The zero value is for a pipe or a file: no colors, and lines of any length.
type look struct {
	width  int // columns; 0 for no limit
	colors bool
	ascii  bool // it shows nothing else
}

// lookOf returns the look of a.out or a.err.
func lookOf(a *app, w io.Writer) look {
	if !isTerminal(w) {
		return look{}
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return look{width: width, colors: a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb", ascii: !hasUTF8(a)}
}

// hasUTF8 reports whether the locale has UTF-8. The first variable that is set counts, as in POSIX.
func hasUTF8(a *app) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(a.getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return runtime.GOOS == "windows"
}

// tone is the meaning of a text, which a color shows.
type tone int

const (
	plain tone = iota
	good
	warning
	bad
	dim
	banner
)

// toneOf returns the tone of a state of a feed, of a connection, of a kind of difference, or of an outcome of a check.
func toneOf(state string) tone {
	switch state {
	case "idle", "reading", "ok", "equal", "passed":
		return good
	case "halted", "FAIL", "missing", "extra", "different", "reordered", "failed":
		return bad
	case "retrying", "paused", "stopped", "not tested":
		return warning
	}
	return plain
}

// paint colors a text, and replaces characters that the terminal cannot show.
func (l look) paint(t tone, text string) string {
	text = l.replace(text)
	if code := [...]string{"", "32", "33", "31", "2", "7;31"}[t]; l.colors && code != "" {
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	return text
}

// paintFirst colors the first word of a line by its meaning.
func (l look) paintFirst(line string) string {
	word, _, _ := strings.Cut(line, " ")
	return l.paint(toneOf(word), word) + l.replace(line[len(word):])
}

func (l look) replace(text string) string {
	if !l.ascii {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x80:
			return r
		case r == '…':
			return '~'
		case r == '✗':
			return 'x'
		}
		return '?'
	}, text)
}

// asciiWriter replaces what a terminal without UTF-8 cannot show. Each Write has whole characters.
type asciiWriter struct{ w io.Writer }

func (a asciiWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(a.w, look{ascii: true}.replace(string(p)))
	return len(p), err
}

// fit cuts a text to a number of columns.
func fit(text string, columns int) string {
	switch {
	case columnsOf.String(text) <= columns:
		return text
	case columns <= 0:
		return ""
	}
	return columnsOf.TruncateString(text, columns, "…")
}

// fitName cuts a name in its middle: names often differ at the end only.
func fitName(name string, columns int) string {
	if columnsOf.String(name) <= columns || columns < 4 {
		return fit(name, columns)
	}
	end := []rune(name)
	for columnsOf.String(string(end)) > columns/2 {
		end = end[1:]
	}
	return fit(name, columns-columnsOf.String(string(end))) + string(end)
}

// pad cuts or extends a text to a number of columns.
func pad(text string, columns int) string {
	text = fit(text, columns)
	return text + strings.Repeat(" ", max(0, columns-columnsOf.String(text)))
}

// wrap breaks a text at spaces into lines of at most so many columns; 0 for no limit. The lines after the first begin
// with indent.
func wrap(text string, columns int, indent string) []string {
	if columns <= 0 || columnsOf.String(text) <= columns {
		return []string{text}
	}
	words := strings.TrimLeft(text, " ")
	line := text[:len(text)-len(words)]
	if len(line) >= columns || len(indent) >= columns {
		line, indent = "", ""
	}
	var lines []string
	for i, word := range strings.Split(words, " ") {
		switch {
		case i == 0:
			line += word
		case columnsOf.String(line+" "+word) <= columns:
			line += " " + word
		default:
			lines = append(lines, line)
			line = indent + word
		}
		for columnsOf.String(line) > columns {
			head := columnsOf.TruncateString(line, columns, "")
			if len(head) <= len(indent) { // a wide character in a narrow terminal
				break
			}
			lines = append(lines, head)
			line = indent + line[len(head):]
		}
	}
	return append(lines, line)
}
