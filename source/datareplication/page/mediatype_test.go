package page

import (
	"errors"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

func TestParseBoundary(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in, want string
		kind           string // of the error
	}{
		{"case 49: no Content-Type", "", "", kindMissingContentType},
		{"case 49: not multipart", "text/plain", "", kindBadContentType},
		{"case 49: not multipart, with a boundary", "text/plain; boundary=b", "", kindBadContentType},
		{"case 49: no boundary", "multipart/mixed", "", kindMissingBoundary},
		{"case 49: another parameter only", "multipart/mixed; charset=utf-8", "", kindMissingBoundary},
		{"case 49: empty boundary", "multipart/mixed; boundary=", "", kindMissingBoundary},
		{"case 49: empty boundary in quotes", `multipart/mixed; boundary=""`, "", kindMissingBoundary},
		{"case 49: quote without an end", `multipart/mixed; boundary="b`, "", kindBadContentType},
		{"case 49: quote that ends in a backslash", `multipart/mixed; boundary="b\"`, "", kindBadContentType},
		{"case 49: something behind the quotes", `multipart/mixed; boundary="b"c`, "", kindBadContentType},
		{"case 50: any subtype", "multipart/blub; boundary=b", "b", ""},
		{"case 50: upper case", "MULTIPART/PACKAGE; BOUNDARY=FOOBAR", "FOOBAR", ""},
		{"case 50: no subtype", "multipart; boundary=b", "b", ""},
		{"case 51: angle brackets in quotes", `multipart/package; boundary="<random-boundary>"`, "<random-boundary>", ""},
		{"case 51: angle brackets without quotes", "multipart/package; boundary=<random-boundary>", "<random-boundary>", ""},
		{"case 52: blanks and semicolons in quotes", `multipart/mixed; boundary="a b;c=d"`, "a b;c=d", ""},
		{"case 52: backslashes in quotes", `multipart/mixed; boundary="a\"b\\c"`, `a"b\c`, ""},
		{"blanks without quotes", "multipart/mixed; boundary=a b ; x=y", "a b", ""},
		{"other parameters around it", `multipart/mixed; x="; boundary=no"; Boundary = b ;y`, "b", ""},
		{"a parameter without a value", "multipart/mixed; boundary; x", "", kindMissingBoundary},
		{"two boundaries", "multipart/mixed; boundary=a; boundary=b", "a", ""},
		{"a line end in the boundary", "multipart/mixed; boundary=\"a\nb\"", "", kindBadContentType},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, err := ParseBoundary(tt.in, "page")
			if got != tt.want || kindOf(err) != tt.kind {
				t.Errorf("ParseBoundary(%q) = %q, %v", tt.in, got, err)
			}
		})
	}
}

// kindOf returns the kind of the violation that stopped the reading, "" for no
// error, and the error's text for one of another sort.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	var v *feed.Violation
	if !errors.As(err, &v) || !errors.Is(err, feed.ErrPermanent) {
		return err.Error()
	}
	return v.Kind
}

// kindsOf returns the kinds of violations that did not stop the reading.
func kindsOf(violations []feed.Violation) []string {
	var kinds []string
	for _, v := range violations {
		kinds = append(kinds, v.Kind)
	}
	return kinds
}
