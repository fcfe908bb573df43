package entry

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// Prose is text, or HTML.
type Prose struct {
	Text   string
	IsHTML bool
}

// HTML returns the prose as HTML.
func (p *Prose) HTML() string {
	if p.IsHTML {
		return p.Text
	}
	return html.EscapeString(p.Text)
}

func (p *Prose) IsBlank() bool { return p == nil || strings.TrimSpace(p.Text) == "" }

// longestSummary limits the plain text of a summary in HTML, in bytes.
const longestSummary = 500

// split returns the prose as text, of HTML the beginning, and as HTML if it is.
func (p *Prose) split(longest int) (text, markup string) {
	switch {
	case p.IsBlank():
		return "", ""
	case !p.IsHTML:
		return p.Text, ""
	}
	return PlainText(p.Text, longest), p.Text
}

func join(text, markup string) *Prose {
	switch {
	case markup != "":
		return &Prose{markup, true}
	case text != "":
		return &Prose{text, false}
	}
	return nil
}

// isWithinWords reports whether an element of HTML separates no words.
func isWithinWords(name []byte) bool {
	switch string(name) {
	case "a", "abbr", "b", "code", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "u":
		return true
	}
	return false
}

// PlainText returns at most longest bytes of the text of HTML, of which it reads no more than it needs.
func PlainText(markup string, longest int) string {
	if !strings.ContainsAny(markup, "<&") && len(markup) <= longest {
		return strings.Join(strings.Fields(markup), " ")
	}
	var b strings.Builder
	b.Grow(min(longest, len(markup)) + len("…"))
	hidden, separate := false, false
	for z := html.NewTokenizer(strings.NewReader(markup)); ; {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			if hidden {
				continue
			}
			text := z.Text()
			for word := range bytes.FieldsSeq(text) {
				if separate = separate || &word[0] != &text[0]; separate && b.Len() > 0 {
					b.WriteByte(' ')
				}
				separate = false
				if b.Write(word[:min(len(word), longest+1)]); b.Len() > longest {
					return strings.ToValidUTF8(b.String()[:longest], "") + "…"
				}
			}
			if last, _ := utf8.DecodeLastRune(text); unicode.IsSpace(last) {
				separate = true
			}
		default:
			name, _ := z.TagName()
			hidden = (string(name) == "script" || string(name) == "style") && !hidden
			separate = separate || !isWithinWords(name)
		}
	}
}
