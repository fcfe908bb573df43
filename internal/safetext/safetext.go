// Package safetext prepares text that comes from outside, such as the IDs, links
// and answers of a feed, for a terminal, a log or a status page. [Clip] makes it
// one line of printable characters of bounded length. A [Redactor] hides the
// secrets of URLs. Where both apply, secrets are hidden after cleaning, because
// cleaning may put the pieces of a secret together.
package safetext

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Clip returns text as one line of at most most characters. White space becomes
// single blanks. Characters that are not printable, such as those that move the
// cursor of a terminal or reverse the direction of the text, and bytes that are
// not UTF-8 are written as in Go: \x1b, \u202e.
//
// If the text is too long, the middle of its longest words is replaced by …, down to
// shortWord characters each. Long words are URLs and IDs of others; the program's own
// sentences, which end with a cure, stay whole. If that is not enough, the middle of the
// text is replaced, and the last third of most characters is kept.
func Clip(text string, most int) string {
	return shorten(Clean(text), most)
}

// shortWord is the number of characters up to which a word is not shortened by [Clip]
// because of the length of the text around it.
const shortWord = 60

// shorten returns a clean text in at most most characters, see [Clip].
func shorten(text string, most int) string {
	if len(text) <= most || utf8.RuneCountInString(text) <= most {
		return text
	}
	words := strings.Split(text, " ")
	lengths := make([]int, len(words))
	for i, word := range words {
		lengths[i] = utf8.RuneCountInString(word)
	}
	// The smallest limit on words with which the text is still too long.
	tooLong := shortWord + sort.Search(max(0, most-shortWord+1), func(above int) bool {
		total := len(words) - 1
		for _, n := range lengths {
			total += min(n, shortWord+above)
		}
		return total > most
	})
	longest := max(shortWord, tooLong-1)
	for i, word := range words {
		words[i] = cutMiddle(word, longest)
	}
	return cutMiddle(strings.Join(words, " "), most)
}

// Clean is [Clip] without the limit.
func Clean(text string) string {
	if isClean(text) {
		return text
	}
	b := make([]byte, 0, len(text)+16)
	blank := false
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			blank = len(b) > 0
			i += size
			continue
		case blank:
			b, blank = append(b, ' '), false
		}
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, text[i])
		case !strconv.IsPrint(r):
			b = append(b, strings.Trim(strconv.QuoteRune(r), "'")...)
		default:
			b = append(b, text[i:i+size]...)
		}
		i += size
	}
	return string(b)
}

func isClean(text string) bool {
	blank := true // at the start
	for _, r := range text {
		if r == utf8.RuneError || !strconv.IsPrint(r) || r == ' ' && blank {
			return false
		}
		blank = r == ' '
	}
	return !blank || text == ""
}

// cutMiddle replaces the middle of a text that has more than most characters.
func cutMiddle(text string, most int) string {
	if len(text) <= most {
		return text
	}
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	end := max(0, (most-1)/3)
	return string(runes[:max(0, most-1-end)]) + "…" + string(runes[len(runes)-end:])
}

// JSON returns the JSON text b with the characters that a terminal may obey
// escaped. Package json escapes only those below U+0020.
func JSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, needsEscape) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case !needsEscape(r):
			out = append(out, b[:size]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[size:]
	}
	return out
}

// needsEscape reports whether r is not printable. Blanks and line ends are allowed,
// because they separate the values of JSON.
func needsEscape(r rune) bool {
	return r >= utf8.RuneSelf && r != utf8.RuneError && !strconv.IsPrint(r) || r == 0x7F
}
