package page

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// partOf returns a part with the given header lines and body, read from a page.
func partOf(t *testing.T, body string, lines ...string) Part {
	t.Helper()
	p := NewReader(strings.NewReader("--b\r\n"+strings.Join(lines, "\r\n")+"\r\n\r\n"+body+"\r\n--b--"), "b", "page", 1<<20)
	got, err := p.Next()
	must.Succeed(t, err)
	return got
}

// lines returns the header lines that an entity must have. A change is a line
// that replaces the one of the same name; one that ends in its colon removes it.
func lines(changes ...string) []string {
	lines := []string{
		"Content-Type: application/json",
		"Last-Modified: Thu, 5 Oct 2023 03:00:13 GMT",
		"Content-ID: <1-B@random-content-id>",
		"Operation-Type: http-equiv=PUT",
	}
	for _, change := range changes {
		name, value, _ := strings.Cut(change, ":")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+":") })
		if value == "" {
			lines = slices.Delete(lines, i, i+1)
		} else {
			lines[i] = change
		}
	}
	return lines
}

func TestNewEntity(t *testing.T) {
	t.Parallel()
	got, violations, err := NewEntity(partOf(t, "{}", lines()...), "https://x.example/2", 0)
	if err != nil || violations != nil {
		t.Fatalf("got %v, %v", err, violations)
	}
	want := feed.Entity{
		ID: "<1-B@random-content-id>", Op: feed.Put, Modified: time.Date(2023, 10, 5, 3, 0, 13, 0, time.UTC),
		Header: feed.Header{
			{Name: "Content-Type", Value: "application/json"},
			{Name: "Last-Modified", Value: "Thu, 5 Oct 2023 03:00:13 GMT"},
			{Name: "Content-ID", Value: "<1-B@random-content-id>"},
			{Name: "Operation-Type", Value: "http-equiv=PUT"},
		},
		Body: []byte("{}"), Page: "https://x.example/2",
	}
	must.Match(t, "", want, got)
}

func TestNewEntityRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, change, kind string }{
		{"case 53: no Content-Type", "Content-Type:", kindMissingEntityType},
		{"case 53: an empty Content-Type", "Content-Type: ", kindMissingEntityType},
		{"case 54: no Last-Modified", "Last-Modified:", MissingEntityTime},
		{"case 54: Last-Modified is no date", "Last-Modified: 2023-10-05T03:00:13Z", kindBadEntityTime},
		{"case 55: no Content-ID, and none is made up", "Content-ID:", kindMissingID},
		{"case 58: an empty Content-ID", "Content-ID: ", kindMissingID},
		{"case 60: CUT", "Operation-Type: http-equiv=CUT", kindBadOperation},
		{"case 60: POST, not passed on", "Operation-Type: POST", kindBadOperation},
		{"case 60: a parameter", "Operation-Type: PUT; x=y", kindBadOperation},
		{"case 60: another prefix", "Operation-Type: http=PUT", kindBadOperation},
		{"case 60: the prefix alone", "Operation-Type: http-equiv", kindBadOperation},
		{"case 60: nothing behind the prefix", "Operation-Type: http-equiv=", kindBadOperation},
		{"case 61: no Operation-Type", "Operation-Type:", kindMissingOperation},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			_, _, err := NewEntity(partOf(t, "{}", lines(tt.change)...), "https://x.example/2", 7)
			if kindOf(err) != tt.kind {
				t.Fatalf("got %v", err)
			}
			if _, value, _ := strings.Cut(tt.change, ": "); !strings.Contains(err.Error(), "entity 7, at byte 5 ") || !strings.Contains(err.Error(), value) {
				t.Errorf("the error does not say which entity, or which value: %v", err)
			}
		})
	}
}

func TestNewEntityAccepts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change string
		id     string
		op     feed.Operation
	}{
		{"case 56: ID with brackets", "Content-ID: <1-B@random-content-id>", "<1-B@random-content-id>", feed.Put},
		{"case 56: ID without brackets", "Content-ID: 1-B@random-content-id", "1-B@random-content-id", feed.Put},
		{"case 57: ID in lower case", "Content-ID: <1-b@random-content-id>", "<1-b@random-content-id>", feed.Put},
		{"case 59: http-equiv=PUT", "Operation-Type: http-equiv=PUT", "", feed.Put},
		{"case 59: http-equiv=DELETE", "Operation-Type: http-equiv=DELETE", "", feed.Delete},
		{"case 59: http-equiv=PATCH", "Operation-Type: http-equiv=PATCH", "", feed.Patch},
		{"case 59: PUT", "Operation-Type: PUT", "", feed.Put},
		{"case 62: a blank", "Operation-Type: http-equiv= put", "", feed.Put},
		{"case 62: blanks", "Operation-Type: HTTP-Equiv = delete", "", feed.Delete},
		{"case 62: quotes", `Operation-Type: http-equiv="PUT"`, "", feed.Put},
		{"case 62: quotes around it all", `Operation-Type: "http-equiv=PATCH"`, "", feed.Patch},
		{"case 62: lower case", "Operation-Type: patch", "", feed.Patch},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, violations, err := NewEntity(partOf(t, "{}", lines(tt.change)...), "page", 0)
			if err != nil || violations != nil || got.Op != tt.op || tt.id != "" && got.ID != tt.id {
				t.Errorf("got %q, %q, %v, %v", got.ID, got.Op, err, violations)
			}
			name, value, _ := strings.Cut(tt.change, ": ")
			if kept, _ := got.Header.Get(name); kept != value {
				t.Errorf("the header is no longer what was received: %q", kept)
			}
		})
	}
}

func TestNewEntityKeepsHeaders(t *testing.T) {
	t.Parallel()
	parallel.Run(t, "case 63: names in any case", func(t *testing.T) {
		p := partOf(t, "{}", "cONTenT-tYpE: text/plain", "LAST-MODIFIED: Thu, 5 Oct 2023 03:00:13 GMT", "content-id: 1", "operation-type: PUT")
		got, _, err := NewEntity(p, "page", 0)
		if err != nil || got.ID != "1" || got.Op != feed.Put {
			t.Fatalf("got %+v, %v", got, err)
		}
		if got.Header[0].Name != "cONTenT-tYpE" {
			t.Errorf("got name %q", got.Header[0].Name)
		}
	})
	parallel.Run(t, "case 64: headers that mean nothing to the bridge", func(t *testing.T) {
		extra := []string{"Content-Disposition: attachment; filename=\"a, b\"", "ETag: W/\"1\"", "x-weird:  a:b ", "X-Empty:"}
		got, violations, err := NewEntity(partOf(t, "{}", append(lines(), extra...)...), "page", 0)
		if err != nil || violations != nil {
			t.Fatalf("got %v, %v", err, violations)
		}
		want := feed.Header{
			{Name: "Content-Disposition", Value: `attachment; filename="a, b"`},
			{Name: "ETag", Value: `W/"1"`},
			{Name: "x-weird", Value: "a:b"},
			{Name: "X-Empty", Value: ""},
		}
		must.Match(t, "", want, got.Header[4:])
	})
	parallel.Run(t, "case 65: repeated headers", func(t *testing.T) {
		p := partOf(t, "hello", append(lines(), "Content-Length: 123", "Content-Length: 5", "Content-ID: second")...)
		got, violations, err := NewEntity(p, "page", 0)
		if err != nil || string(got.Body) != "hello" || got.ID != "<1-B@random-content-id>" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if kinds := kindsOf(violations); !slices.Equal(kinds, []string{kindLengthMismatch}) {
			t.Errorf("got violations %v", violations)
		}
		want := feed.Header{{Name: "Content-Length", Value: "123"}, {Name: "Content-Length", Value: "5"}, {Name: "Content-ID", Value: "second"}}
		must.Match(t, "", want, got.Header[4:])
	})
	parallel.Run(t, "case 65: an empty Content-ID before another one", func(t *testing.T) {
		got, _, err := NewEntity(partOf(t, "hello", append([]string{"Content-ID: "}, lines()...)...), "page", 0)
		if err != nil || got.ID != "<1-B@random-content-id>" {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	parallel.Run(t, "case 66: Content-Length missing or right", func(t *testing.T) {
		for _, with := range [][]string{lines(), append(lines(), "Content-Length: 5")} {
			if _, violations, err := NewEntity(partOf(t, "hello", with...), "page", 0); err != nil || violations != nil {
				t.Errorf("%q: got %v, %v", with, err, violations)
			}
		}
	})
	parallel.Run(t, "case 65: Content-Length that is no length", func(t *testing.T) {
		for _, length := range []string{"6", "-5", "five", "", "18446744073709551621"} {
			_, violations, err := NewEntity(partOf(t, "hello", append(lines(), "Content-Length: "+length)...), "page", 0)
			if kinds := kindsOf(violations); err != nil || !slices.Equal(kinds, []string{kindLengthMismatch}) {
				t.Errorf("%q: got %v, %v", length, err, violations)
			}
		}
	})
	parallel.Run(t, "case 47: the wrong weekday", func(t *testing.T) {
		_, violations, err := NewEntity(partOf(t, "{}", lines("Last-Modified: Mon, 05 Oct 2023 03:00:13 GMT")...), "page", 0)
		if kinds := kindsOf(violations); err != nil || !slices.Equal(kinds, []string{kindWrongWeekday}) {
			t.Errorf("got %v, %v", err, violations)
		}
	})
	parallel.Run(t, "case 83: a multipart entity", func(t *testing.T) {
		body := "--inner\r\nContent-Type: text/plain\r\n\r\nhello\r\n--inner--\r\n"
		got, violations, err := NewEntity(partOf(t, body, lines("Content-Type: multipart/mixed; boundary=inner")...), "page", 0)
		if err != nil || violations != nil || string(got.Body) != body {
			t.Errorf("got %q, %v, %v", got.Body, err, violations)
		}
	})
	parallel.Run(t, "case 83: a transfer encoding is not undone", func(t *testing.T) {
		for _, encoding := range []string{"base64", "Quoted-Printable"} {
			got, violations, err := NewEntity(partOf(t, "aGk=", append(lines(), "Content-Transfer-Encoding: "+encoding)...), "page", 0)
			if kinds := kindsOf(violations); err != nil || !slices.Equal(kinds, []string{kindTransferEncoding}) {
				t.Errorf("%s: got %v, %v", encoding, err, violations)
			}
			if kept, _ := got.Header.Get("Content-Transfer-Encoding"); string(got.Body) != "aGk=" || kept != encoding {
				t.Errorf("got %q, %q", got.Body, kept)
			}
		}
	})
	parallel.Run(t, "case 83: transfer encodings that change nothing", func(t *testing.T) {
		for _, encoding := range []string{"7bit", "8bit", "binary"} {
			if _, violations, err := NewEntity(partOf(t, "hi", append(lines(), "Content-Transfer-Encoding: "+encoding)...), "page", 0); err != nil || violations != nil {
				t.Errorf("%s: got %v, %v", encoding, err, violations)
			}
		}
	})
}
