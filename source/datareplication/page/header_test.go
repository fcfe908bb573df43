package page

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

const (
	selfLine     = "Link: <https://x.example/feed/2>; rel=self\r\n"
	modifiedLine = "Last-Modified: Thu, 5 Oct 2023 03:00:13 GMT\r\n"
	typeLine     = "Content-Type: multipart/package; boundary=<b>\r\n"
)

// header returns what net/http makes of a response's header lines.
func header(t *testing.T, lines string) http.Header {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n"+lines+"\r\n")), nil)
	must.Succeed(t, err)
	_ = res.Body.Close()
	return res.Header
}

func TestParsePageHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, lines string
		head        bool // the answer to a HEAD request
		kind        string
		violations  []string
	}{
		{name: "a page", lines: selfLine + modifiedLine + typeLine},
		{name: "case 41: no Link", lines: modifiedLine + typeLine, kind: kindMissingSelf},
		{name: "case 41: no self, strict for every page", lines: "Link: <https://x.example/feed/1>; rel=prev\r\n" + modifiedLine + typeLine, kind: kindMissingSelf},
		{name: "case 42: no target", lines: "Link: ; rel=self\r\n" + modifiedLine + typeLine, kind: kindMissingSelf},
		{name: "case 42: an empty target", lines: "Link: <>; rel=self\r\n" + modifiedLine + typeLine, kind: kindMissingSelf},
		{name: "case 43: two self links", lines: selfLine + selfLine + modifiedLine + typeLine, violations: []string{kindRepeatedLink}},
		{name: "case 44: no Last-Modified", lines: selfLine + typeLine, kind: kindMissingModified},
		{name: "case 44: Last-Modified is no date", lines: selfLine + "Last-Modified: yesterday\r\n" + typeLine, kind: kindBadModified},
		{name: "case 47: the wrong weekday", lines: selfLine + "Last-Modified: Mon, 05 Oct 2023 03:00:13 GMT\r\n" + typeLine, violations: []string{kindWrongWeekday}},
		{name: "case 49: no Content-Type", lines: selfLine + modifiedLine, kind: kindMissingContentType},
		{name: "case 49: no Content-Type, to HEAD", lines: selfLine + modifiedLine, head: true},
		{name: "case 63: names in any case", lines: "lInK: <https://x.example/feed/2>; rel=self\r\nlast-modified: Thu, 5 Oct 2023 03:00:13 GMT\r\ncONTenT-tYpE: multipart/package; boundary=<b>\r\n"},
		{name: "an unreadable link", lines: selfLine + "Link: <https://x.example/feed/3; rel=next\r\n" + modifiedLine + typeLine, kind: kindBadLink},
	}
	for _, tt := range tests {
		parallel.Run(t, tt.name, func(t *testing.T) {
			got, violations, err := ParseHeader(header(t, tt.lines), mustURL(t, "https://x.example/feed/latest"), !tt.head)
			if kindOf(err) != tt.kind || !slices.Equal(kindsOf(violations), tt.violations) {
				t.Fatalf("got %v and violations %v", err, violations)
			}
			want := Header{Self: p2, Modified: time.Date(2023, 10, 5, 3, 0, 13, 0, time.UTC), Boundary: "<b>"}
			if tt.head {
				want.Boundary = ""
			}
			if err == nil && got != want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestPageErrorsHideUserInfo(t *testing.T) {
	t.Parallel()
	_, _, err := ParseHeader(http.Header{}, mustURL(t, "https://me:secret@x.example/feed"), true)
	if kindOf(err) != kindMissingSelf || strings.Contains(err.Error(), "me:") {
		t.Errorf("got %v", err)
	}
}
