package feedxml

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
)

// declarationBytes is the length of the part of a document in which the encoding is
// declared.
const declarationBytes = 1024

// declared matches an XML declaration with an encoding.
var declared = regexp.MustCompile(`^<\?xml\s[^>]*?\bencoding\s*=\s*["']\s*([A-Za-z0-9._:-]+)\s*["']`)

var (
	errNoSuchCharset = errors.New("this encoding is not known")
	// errUnreadableCharset is for encodings in which other text has the bytes of ASCII, so that they
	// are never read as UTF-8.
	errUnreadableCharset = errors.New("this encoding is not known to feedbridge")
)

// decodedDocument is a document in UTF-8, without a byte order mark.
type decodedDocument struct {
	r io.Reader
	// charset is the name of its original encoding. mismatch describes the conflict if
	// the document declares another, and fault is not empty if the declared one is not
	// known.
	charset, mismatch, fault string
	// assumed reports that nothing names the encoding, so that the document is read as UTF-8.
	assumed bool
	// unknown reports that the declared encoding is not known, so that the document is read only
	// as far as it is UTF-8.
	unknown bool
	// mixed reports that bytes which are not UTF-8 are windows-1252, because the
	// document was declared to be ASCII.
	mixed bool
}

// decodeDocument detects the encoding of r: that of the byte order mark, else of the
// Content-Type, else of the XML declaration, else UTF-8 (RFC 7303, section 3). If
// lenient, an unknown encoding is read as UTF-8, which most documents with such a label are.
//
// A document is never read in an encoding that its bytes contradict: with "<?xml" in
// single bytes it is not UTF-16, even if it is labelled as that.
func decodeDocument(r io.Reader, contentType string, lenient bool) (d decodedDocument, err error) {
	b := bufio.NewReaderSize(r, declarationBytes)
	// An error is returned again when the document is read.
	head, _ := b.Peek(declarationBytes)
	label, mark := seenCharset(head)
	head = head[mark:]
	written := declaredCharset(head)
	_, _ = b.Discard(mark)
	by := "its byte order mark"
	switch label {
	case "utf-16le", "utf-16be":
		order := unicode.LittleEndian
		if label == "utf-16be" {
			order = unicode.BigEndian
		}
		return decodedDocument{r: unicode.UTF16(order, unicode.IgnoreBOM).NewDecoder().Reader(b), charset: label}, nil
	case "":
		if label = sentCharset(contentType); label != "" {
			by = "its Content-Type"
		} else if label = written; label != "" {
			by = "its XML declaration"
		} else {
			label, d.assumed = "utf-8", true
		}
	}
	if isASCII(label) {
		label, d.mixed = "utf-8", true
	}
	enc, charset, err := lookupCharset(label)
	switch {
	case errors.Is(err, errNoSuchCharset) && lenient:
		return decodedDocument{r: b, charset: fmt.Sprintf("utf-8, as which it is read because the encoding %q is not known", Excerpt(label)), unknown: true, fault: fmt.Sprintf("the encoding is %q, as %s says, which is not known; the document is read as UTF-8", Excerpt(label), by)}, nil
	case err != nil:
		return decodedDocument{}, fmt.Errorf("%q, as %s says: %w", label, by, err)
	}
	if strings.HasPrefix(charset, "utf-16") {
		return decodedDocument{
			r: b, charset: "utf-8", mismatch: fmt.Sprintf("the document is %s according to %s, but its bytes are not; it is read as UTF-8", charset, by),
		}, nil
	}
	if _, other, err := lookupCharset(written); err == nil && other != charset && !isASCII(written) {
		d.mismatch = fmt.Sprintf("the document is %s according to %s, which counts, and %s according to its XML declaration", charset, by, other)
	}
	if d.r, d.charset = b, charset; charset != "utf-8" {
		d.r = enc.NewDecoder().Reader(b)
	}
	return d, nil
}

// Decode returns a document in UTF-8, without its byte order mark. Its encoding is that of the byte order mark, else of
// the XML declaration, else UTF-8.
func Decode(r io.Reader) (io.Reader, error) {
	d, err := decodeDocument(r, "", false)
	return d.r, err
}

// isASCII reports whether a label means ASCII. The bytes of many documents with such
// a label are UTF-8.
func isASCII(label string) bool {
	switch strings.ToLower(strings.TrimSpace(label)) {
	case "us-ascii", "ascii", "iso646-us", "ansi_x3.4-1968":
		return true
	}
	return false
}

// knownLabel returns the label of an encoding in the form that lookupCharset knows: it
// corrects usual mistakes, and returns "" for labels such as "none".
func knownLabel(label string) string {
	label = strings.Trim(strings.TrimSpace(label), `'"`)
	switch strings.ToLower(label) {
	case "none", "unknown", "null":
		return ""
	case "utf_8", "utf", "utf8mb4":
		return "utf-8"
	}
	return label
}

// declaredCharset returns the encoding in the XML declaration that a document begins with, of which head is
// the beginning; "" if it has none.
func declaredCharset(head []byte) string {
	if match := declared.FindSubmatch(bytes.TrimLeft(head, " \t\r\n\f\v")); match != nil {
		return knownLabel(string(match[1]))
	}
	return ""
}

// seenCharset detects an encoding by a byte order mark of mark bytes, or by the zeros
// around the first character. It returns "" if the document has neither.
func seenCharset(head []byte) (charset string, mark int) {
	for _, known := range []struct {
		begins, charset string
		mark            int
	}{
		{"\x00\x00\xfe\xff", "utf-32", 4},
		{"\xff\xfe\x00\x00", "utf-32", 4},
		{"\x00\x00\x00<", "utf-32", 0},
		{"<\x00\x00\x00", "utf-32", 0},
		{"\xef\xbb\xbf", "utf-8", 3},
		{"\xfe\xff", "utf-16be", 2},
		{"\xff\xfe", "utf-16le", 2},
		{"\x00<", "utf-16be", 0},
		{"<\x00", "utf-16le", 0},
	} {
		if bytes.HasPrefix(head, []byte(known.begins)) {
			return known.charset, known.mark
		}
	}
	return "", 0
}

// lookupCharset finds an encoding by any of its names. As browsers do, it takes
// ISO-8859-1 and US-ASCII for windows-1252, which they are part of.
func lookupCharset(label string) (encoding.Encoding, string, error) {
	enc, err := htmlindex.Get(label)
	if folded := strings.ToLower(label); folded == "utf-7" || folded == "utf-32" {
		return nil, "", errUnreadableCharset
	}
	if err != nil {
		return nil, "", errNoSuchCharset
	}
	name, err := htmlindex.Name(enc)
	if err != nil || name == "replacement" || name == "x-user-defined" {
		return nil, "", errUnreadableCharset
	}
	return enc, name, nil
}

func sentCharset(contentType string) string {
	if contentType == "" {
		return ""
	}
	// An unreadable parameter does not hide the others.
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return knownLabel(params["charset"])
}
